package netlab

import (
	"errors"
	"testing"
	"time"
)

// Patience is how long tests wait for what has to happen. It is long: a busy machine must not decide a test.
const Patience = 3 * time.Minute

// Await looks until check finds nothing wrong. It returns what check found last if that never comes.
func Await(check func() error) error { return AwaitFor(Patience, check) }

// AwaitFor is Await with less patience, for what may well never come.
func AwaitFor(patience time.Duration, check func() error) error {
	pause, end := time.Millisecond, time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// Pause has a disturber of a test wait, such as one that kills a process at any moment. No test is decided by how long that is.
func Pause(d time.Duration) { time.Sleep(d) }

// Eventually ends the test if check never stops to find something wrong.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	if err := Await(check); err != nil {
		t.Fatalf("after %v: %v", Patience, err)
	}
}

// Until ends the test if something never is so.
func Until(t testing.TB, what string, isSo func() bool) {
	t.Helper()
	Eventually(t, func() error {
		if isSo() {
			return nil
		}
		return errors.New("waited in vain for " + what)
	})
}
