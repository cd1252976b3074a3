package socket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// The limits of one client.
const (
	headerLimit = 5 * time.Second  // to say what it wants
	bodyLimit   = 10 * time.Second // to send all of it
	writeLimit  = 5 * time.Minute  // until it has its answer: longer than any request may take
	maxBody     = 64 << 10         // a request has some hundred bytes
	maxHeader   = 16 << 10
	most        = 256 // clients at once: others wait until one has its answer, or has said nothing for too long
	mostRefused = 16  // others than root that are told why at once

	lastWords = time.Second     // clients that have connected have to say what they want when listening ends
	finish    = 7 * time.Second // what is under way has when the agent stops; then it is cancelled
	undo      = 2 * time.Second // and has this to undo what it did
)

// ErrStopping is why requests are cancelled that are under way when the agent stops.
var ErrStopping = errors.New("the agent stops")

// Serve answers requests until ctx ends, and finishes those that are under way then. A connection has one request.
func Serve(ctx context.Context, l *net.UnixListener, handler http.Handler, log *slog.Logger) error {
	requests, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	s := &http.Server{
		Handler:           whole{handler},
		ReadHeaderTimeout: headerLimit,
		ReadTimeout:       bodyLimit,
		WriteTimeout:      writeLimit,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	s.SetKeepAlivesEnabled(false)
	ended, listener := make(chan error, 1), &listener{UnixListener: l, log: log, refusing: make(chan struct{}, mostRefused)}
	go func() { ended <- s.Serve(netutil.LimitListener(listener, most)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// net/http does not answer what it reads when it is shut down, so all that have connected are to have said by then what they want.
	_ = listener.Close()
	<-ended
	spoken := make(chan struct{})
	go func() { listener.silent.Wait(); close(spoken) }()
	select {
	case <-spoken:
	case <-time.After(lastWords):
	}
	if shutdown(s, finish) {
		return nil
	}
	log.Warn("requests that are under way are cancelled: the agent stops", "socket", l.Addr().String())
	cancel(ErrStopping)
	shutdown(s, undo)
	return s.Close()
}

// shutdown reports whether all requests have ended in time.
func shutdown(s *http.Server, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return s.Shutdown(ctx) == nil
}

// whole has the handler called when the request's body is here, or is known not to come: its Read then returns why.
type whole struct{ http.Handler }

func (h whole) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
	} else {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	clientOf(r).speak()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // from now on, a read that ends means that the client has gone
	h.Handler.ServeHTTP(w, r)
}

// failing is the end of a body that did not come.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
