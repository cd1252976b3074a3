package agent

import (
	"context"
	"net"

	"github.com/cnibox/cnibox/pkg/operator/agent/contiv"
	"github.com/cnibox/cnibox/pkg/operator/agent/socket"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/plugin"
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
		Socket: a.Contiv, Network: a.Network, ConfDir: a.ConfDir, BinDirs: a.BinDirs, CacheDir: a.CacheDirs[0], Exec: a.Exec, Log: a.Log,
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

func (c *contivAPI) listen(passed socket.Passed) (err error) {
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

// free frees what is gone, unless contiv's API has a call about it under way. One that the agent has attached is not gone while that lasts; what
// the runtime has of contivk8s is another attachment, whose DEL is a call of the API.
func (a *Agent) free(ctx context.Context, r *collect.Report, it *collect.Item, o collect.Options) bool {
	if a.api != nil && it.Network == a.Network {
		key := plugin.Key{Network: it.Network, ContainerID: it.ContainerID, IfName: it.IfName}
		if !a.api.server.Hold(key) {
			return false
		}
		defer a.api.server.Release(key)
	}
	r.Free(ctx, it, o)
	return true
}
