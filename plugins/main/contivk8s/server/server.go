// Package server answers contiv's API in the agent: it attaches the containers that the plugin contivk8s is called for to a network of this node.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/operator/agent/socket"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// Options say what a server works on.
type Options struct {
	Socket   string // that it is called at: deletions are queued for it while it is away
	Network  string // that containers are attached to
	ConfDir  string // of the networks' files
	BinDirs  []string
	CacheDir string
	Exec     func(cacheDir string) invoke.Exec // calls plugins

	Log *slog.Logger
}

// Server is one for a socket.
type Server struct {
	Options
	adds, dels chan struct{} // a place for each that is under way
	locks      locks
}

// How many calls are under way at once, how long an ADD may take, and a DEL wait for its turn. Further ADDs are told to come again; DELs wait, for
// what they free is needed.
const (
	most     = 64
	addLimit = 3 * time.Minute
	delLimit = time.Minute
)

// New makes a server. Its network may be missing yet; it is an error if it is one that would call the server again.
func New(o Options) (*Server, error) {
	s := &Server{Options: o, adds: make(chan struct{}, most), dels: make(chan struct{}, most), locks: locks{busy: map[plugin.Key]chan struct{}{}}}
	if _, err := s.load(); err != nil {
		if errors.Is(err, errLoop) {
			return nil, err
		}
		o.Log.Warn("containers can't be attached yet", "network", o.Network, "error", err)
	}
	return s, nil
}

// TryLock keeps calls about an attachment waiting until it is released. It fails at once if one is under way.
func (s *Server) TryLock(k plugin.Key) bool { return s.locks.try(k) == nil }

// Release unlocks it.
func (s *Server) Release(k plugin.Key) { s.locks.release(k) }

// ServeHTTP answers contiv's two calls.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer := socket.Peer(r)
	log := s.Log.With("path", r.URL.Path, "uid", peer.Uid, "pid", peer.Pid)
	isAdd := r.URL.Path == contiv.AddPath
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != contiv.ContentType || !isAdd && r.URL.Path != contiv.DelPath {
		log.Warn("a request that is not contiv's", "method", r.Method, "type", r.Header.Get("Content-Type"))
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, err = conf.Parse(body)
	}
	if err != nil {
		log.Warn("a request that can't be read", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("{}"))
		return
	}
	q, err := parse(body)
	log = log.With("container", q.ContainerID, "interface", q.IfName, "pod", q.Namespace+"/"+q.Pod)
	begun := time.Now()
	if err == nil {
		err = s.answer(w, r, q, isAdd)
	}
	if err != nil {
		log.Warn("failed", "error", err, "in", time.Since(begun).Round(time.Millisecond))
		fail(w, err)
		return
	}
	log.Info("done", "in", time.Since(begun).Round(time.Millisecond))
}

// answer does what is asked, and answers if that has succeeded. A panic is an error like any other.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, q contiv.Request, isAdd bool) (err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = plugin.Errorf(fmt.Sprintf("please report it with this trace: %s", debug.Stack()), "bug: %v", bug)
		}
	}()
	if isAdd {
		return s.add(w, r, q)
	}
	if err := s.del(r, q); err != nil {
		return err
	}
	return send(w, contiv.Response{EndpointID: q.ContainerID})
}

// parse reads a request. A name in it must stay one argument of CNI_ARGS.
func parse(body []byte) (contiv.Request, error) {
	q, err := contiv.ParseRequest(body)
	for _, name := range []string{q.Pod, q.Namespace} {
		if err == nil && strings.ContainsAny(name, ";=\x00") {
			err = fmt.Errorf("%q is no name of a pod or its namespace", name)
		}
	}
	if err != nil {
		return q, plugin.CodeErrorf(types.ErrInvalidEnvironmentVariables, "send contiv's five keys, with names as CNI has them", "the request: %w", err)
	}
	return q, nil
}

// send sends an answer, and returns why it can't be: the client has gone.
func send(w http.ResponseWriter, a contiv.Response) error {
	text := a.JSON()
	w.Header().Set("Content-Type", contiv.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	if _, err := w.Write(text); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// fail answers with an error, as contiv's daemon does: 500, and what it says of the CNI error. A client that comes too early is told so.
func fail(w http.ResponseWriter, err error) {
	a, status := contiv.Failure(err), http.StatusInternalServerError
	if plugin.AsError(err).Code == types.ErrUnknown { // a plugin that has ended without an error document
		a.Result = int(types.ErrInternal)
	}
	switch {
	case errors.As(err, &busyError{}):
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	case uint(a.Result) == types.ErrInvalidNetNS:
		a.ErrMsg, a.ErrInfo = "Error moving to netns", "Err: "+strings.Join([]string{a.ErrMsg, a.ErrInfo}, "; ")
	}
	w.Header().Del("Content-Type")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(a.JSON())
}

// busyError says that too much is under way.
type busyError struct{ error }

func (e busyError) Unwrap() error { return e.error }

func busy(format string, args ...any) error {
	return busyError{plugin.CodeErrorf(types.ErrTryAgainLater, "the runtime tries again", format, args...)}
}

// waitFor takes a place, or a lock, until ctx ends.
func waitFor(ctx context.Context, places chan<- struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
