package agent

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/agent/contiv"
	"github.com/cnibox/cnibox/pkg/agent/socket"
)

// contivAPI is contiv's API, where it was asked for: a nil one is none.
type contivAPI struct {
	server   *contiv.Server
	place    *socket.Place
	listener *net.UnixListener
}

// beginContiv makes the API's server, and the only one at its socket.
func (a *Agent) beginContiv() (*contivAPI, error) {
	if a.Contiv == "" {
		return nil, nil
	}
	server, err := contiv.New(contiv.Options{
		Socket: a.Contiv, Network: a.Network, ConfDir: a.ConfDir, BinDirs: a.BinDirs, CacheDir: a.CacheDirs[0], Exec: a.Exec, Log: a.Log, Gate: &a.gate,
	})
	if err != nil {
		return nil, err
	}
	place, err := socket.Own(a.Contiv)
	if err != nil {
		return nil, err
	}
	return &contivAPI{server: server, place: place}, nil
}

// replay does what was asked for while no agent ran.
func (c *contivAPI) replay(ctx context.Context) {
	if c != nil {
		c.server.Replay(ctx)
	}
}

func (c *contivAPI) listen(passed *socket.Passed) (err error) {
	if c != nil {
		c.listener, err = c.place.Listen(passed, "contiv")
	}
	return err
}

func (c *contivAPI) close() {
	if c != nil {
		c.place.Close()
	}
}

// serveContiv is serve for the API.
func (a *Agent) serveContiv(ctx context.Context, c *contivAPI) <-chan struct{} {
	if c == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	a.Log.Info("contiv's API is served", "socket", a.Contiv, "network", a.Network)
	return a.serve(ctx, c.listener, c.server)
}

// closeGate keeps calls of the API out until the gate is unlocked. It gives up if some are under way all the time: they don't wait for us.
func closeGate(ctx context.Context, gate *sync.RWMutex) bool {
	const patience, pause = 5 * time.Second, 20 * time.Millisecond
	for end := time.Now().Add(patience); !gate.TryLock(); time.Sleep(pause) {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
	return true
}
