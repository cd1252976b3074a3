package agent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/net/netutil"

	"github.com/cnibox/cnibox/pkg/operator/agent/socket"
	"github.com/cnibox/cnibox/pkg/plugin"
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

// listenForMetrics listens at the TCP address that was asked for; it returns nil if none was.
func (a *Agent) listenForMetrics(ctx context.Context) (net.Listener, error) {
	if a.Metrics == "" {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.Metrics)
	if err != nil {
		return nil, plugin.Errorf("name an address of this node and a free port, such as 127.0.0.1:9469", "the metrics can't be served: %w", err)
	}
	return l, nil
}

// serveMetrics serves metrics, and nothing else, to whoever can reach the address, until ctx ends.
func (a *Agent) serveMetrics(ctx context.Context, l net.Listener) {
	if l == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics())
	const limit = 10 * time.Second
	server := &http.Server{Handler: mux, ReadTimeout: limit, WriteTimeout: time.Minute, IdleTimeout: limit, MaxHeaderBytes: 16 << 10}
	go func() { _ = server.Serve(netutil.LimitListener(l, mostScrapers)) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
}

// mostScrapers is how many connections to the metrics' address there may be.
const mostScrapers = 16

// notify tells systemd, if it wants to know (sd_notify(3)).
func (a *Agent) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.Log.Warn("systemd can't be told", "state", state, "error", err)
	}
}
