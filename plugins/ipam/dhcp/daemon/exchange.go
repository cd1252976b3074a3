package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// firstPause is how long an answer is waited for before a message is sent again. Then it is twice that, and so on.
const firstPause = time.Second

// mostMessage is how many bytes of a message are read.
const mostMessage = 4096

// endpoint sends and receives the messages of one family on a link.
type endpoint interface {
	ReadFrom(b []byte) (int, net.Addr, error)
	WriteTo(b []byte, to net.Addr) (int, error)
	SetReadDeadline(t time.Time) error
}

// exchange sends a message until it is answered, or ctx ends. The message may say how long that has been going on.
func exchange[T any](ctx context.Context, longest time.Duration, s endpoint, to net.Addr, message func(elapsed time.Duration) []byte,
	answerIn func(packet []byte) (answer T, ok bool)) (answer T, err error) {
	defer context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })()
	begin := time.Now()
	for pause := min(firstPause, longest); ctx.Err() == nil; pause = min(2*pause, longest) {
		_, err := s.WriteTo(message(time.Since(begin)), to)
		if errors.Is(err, unix.ENOBUFS) { // the link has too much to do: as good as lost
			err = nil
		}
		if err = errors.Join(err, s.SetReadDeadline(time.Now().Add(pause))); err != nil {
			return answer, err
		}
		if answer, err = firstAnswer(ctx, s, answerIn); !errors.Is(err, os.ErrDeadlineExceeded) {
			return answer, err
		}
	}
	return answer, context.Cause(ctx)
}

// firstAnswer returns the first answer that comes before the socket's deadline, and passes over all else that does.
func firstAnswer[T any](ctx context.Context, s endpoint, answerIn func(packet []byte) (answer T, ok bool)) (answer T, err error) {
	for packet := make([]byte, mostMessage); ctx.Err() == nil; {
		n, _, err := s.ReadFrom(packet)
		if errors.Is(err, unix.ENETDOWN) { // the link was down, and may be up again
			continue
		}
		if err != nil {
			return answer, err
		}
		if answer, ok := answerIn(packet[:n]); ok {
			return answer, nil
		}
	}
	return answer, context.Cause(ctx)
}

// askUntilLeased asks for a lease until there is one, or ctx ends: a server may refuse what it, or another one, has offered.
func askUntilLeased(ctx context.Context, ask func() (*holding, error)) (*holding, error) {
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
