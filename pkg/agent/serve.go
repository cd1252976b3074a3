package agent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/cnibox/cnibox/pkg/agent/socket"
)

// SocketName is the name of the agent's socket in its directory.
const SocketName = "agent.sock"

func (a *Agent) socket() string { return filepath.Join(a.Dir, SocketName) }

// serve answers requests until ctx ends; what it returns is closed when the last one is answered.
func (a *Agent) serve(ctx context.Context, l *net.UnixListener, h http.Handler) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := socket.Serve(ctx, l, h, a.Log); err != nil {
			a.Log.Error("requests are not answered any more", "socket", l.Addr().String(), "error", err)
		}
	}()
	return ended
}

// notify tells systemd, if it wants to know (sd_notify(3)).
func (a *Agent) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.Log.Warn("systemd can't be told", "state", state, "error", err)
	}
}
