package agent

import (
	"context"
	"net"
	"net/http"

	"github.com/cnibox/cnibox/pkg/operator/agent/socket"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// API is contiv's, which others than the agent's clients call.
type API interface {
	http.Handler

	// Replay does what was asked for while no agent ran.
	Replay(ctx context.Context)

	// TryLock keeps calls about an attachment waiting until it is released. It fails at once if one is under way.
	TryLock(k plugin.Key) bool
	Release(k plugin.Key)
}

// contivAPI is contiv's API with its socket, where it was asked for: a nil one is none.
type contivAPI struct {
	server   API
	claim    *socket.Claim
	listener *net.UnixListener
}

// beginContiv makes the agent the only one at the API's socket.
func (a *Agent) beginContiv() (*contivAPI, error) {
	if a.API == nil {
		return nil, nil
	}
	claim, err := socket.Own(a.Contiv)
	if err != nil {
		return nil, err
	}
	return &contivAPI{server: a.API, claim: claim}, nil
}

func (c *contivAPI) replay(ctx context.Context) {
	if c != nil {
		c.server.Replay(ctx)
	}
}

func (c *contivAPI) listen(passed socket.Passed) (err error) {
	if c != nil {
		c.listener, err = c.claim.Listen(passed, "contiv")
	}
	return err
}

func (c *contivAPI) close() {
	if c != nil {
		c.claim.Close()
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
		if !a.api.server.TryLock(key) {
			return false
		}
		defer a.api.server.Release(key)
	}
	r.Free(ctx, it, o)
	return true
}
