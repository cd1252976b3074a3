package watch

import "time"

// TryAgainAfter is for tests that do not want to wait for long until a bus is found. On a busy machine a bus answers this many times later.
func TryAgainAfter(d time.Duration, busy time.Duration) { tryAgain, answerTime = d, busy*answerTime }
