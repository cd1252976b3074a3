package bridge

import (
	"context"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkSpoofing has the bridge drop what the container sends from any MAC
// address but its own. The container's end is down yet.
func (a *attachment) checkSpoofing(ctx context.Context) error {
	if !a.spoofCheck {
		return nil
	}
	if err := a.Step(ctx, "spoof check"); err != nil {
		return err
	}
	// DEL has backend.DelBridge do it, also for what was made when the configuration
	// was another one.
	a.undo.Push("remove the spoof check", func(ctx context.Context) error { return backend.DelSpoofCheck(ctx, a.Key) })
	return backend.AddSpoofCheck(ctx, a.Key, a.result.Interfaces[1].Name, a.containerMAC)
}

// checkSpoofCheck does not take the address that the container's end has now: the
// container can change it.
func checkSpoofCheck(r *plugin.Request, hostEnd string) error {
	_, reported := r.PrevResult.ContainerInterface(r.IfName, r.Netns)
	mac, err := link.ParseMAC(reported.MAC)
	if err != nil {
		return err
	}
	return backend.CheckSpoofCheck(r.Key, hostEnd, mac)
}
