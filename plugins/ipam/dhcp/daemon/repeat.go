package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// firstPause is how long an answer is waited for before a message is sent again. Then it is twice that, and so on.
const firstPause = time.Second

// repeat sends a message until it is answered, or ctx ends.
func repeat[T any](ctx context.Context, most time.Duration, send func(context.Context) (T, error)) (T, error) {
	for pause := min(firstPause, most); ; pause = min(2*pause, most) {
		short, cancel := context.WithTimeout(ctx, pause)
		answer, err := send(short)
		if errors.Is(err, unix.ENOBUFS) { // the link has too much to do: as good as lost
			<-short.Done()
		}
		silence := short.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !silence {
			return answer, err
		}
	}
}

// persist asks for a lease until there is one, or ctx ends: a server may refuse what it, or another one, has offered.
func persist(ctx context.Context, ask func() (*holding, error)) (*holding, error) {
	for why := error(nil); ; {
		h, err := ask()
		switch {
		case err == nil:
			return h, nil
		case ctx.Err() != nil && why != nil:
			return nil, fmt.Errorf("%w; before that: %w", context.Cause(ctx), why)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, errRefused) && !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
		why = err
		select {
		case <-ctx.Done():
		case <-time.After(firstPause):
		}
	}
}
