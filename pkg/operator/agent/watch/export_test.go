package watch

import "time"

// TryAgainAfter is for tests that do not want to wait for long until a bus is found.
func TryAgainAfter(d time.Duration) { tryAgain = d }
