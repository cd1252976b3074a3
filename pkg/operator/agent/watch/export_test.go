package watch

import "time"

// TryAgainAfter is for tests that do not want to wait for long until a bus is found, and know that one which is there answers in time.
func TryAgainAfter(d, answer time.Duration) { tryAgain, answerTime = d, answer }
