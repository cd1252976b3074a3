package bench

import (
	"errors"
	"sync"
	"testing"
)

// parallel calls work for 0…n-1, workers at a time, and ends b with all errors if there are any.
func parallel(b testing.TB, n, workers int, work func(i int) error) {
	b.Helper()
	numbers := make(chan int)
	errs := make([]error, n)
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for i := range numbers {
				errs[i] = work(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}
