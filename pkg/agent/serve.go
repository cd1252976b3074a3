package agent

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/cnibox/cnibox/pkg/state"
)

// SocketName is the name of the agent's socket in its directory.
const SocketName = "agent.sock"

func (a *Agent) socket() string { return filepath.Join(a.Dir, SocketName) }

// lock makes this agent the only one of the node.
func (a *Agent) lock() (*state.Lock, error) {
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return nil, err
	}
	return state.Acquire(context.Background(), filepath.Join(a.Dir, "lock"), 0o600, 0)
}

func (a *Agent) listen() (net.Listener, error) {
	_ = os.Remove(a.socket())
	return net.Listen("unix", a.socket())
}

// serve answers requests until ctx ends; what it returns is closed when the last one is answered.
func (a *Agent) serve(ctx context.Context, l net.Listener) <-chan struct{} {
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	go func() { _ = server.Serve(l) }()
	context.AfterFunc(ctx, func() {
		until, stop := context.WithTimeout(context.Background(), stopTime)
		defer stop()
		_ = server.Shutdown(until)
		close(ended)
	})
	return ended
}

// notify tells systemd, if it wants to know (sd_notify(3)).
func (a *Agent) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.Log.Warn("systemd can't be told", "state", state, "error", err)
	}
}
