package bridge

import (
	"context"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkSpoofing has the bridge drop what the container sends from any MAC
// address but its own. The container's end is down yet.
func (a *attachment) checkSpoofing(ctx context.Context, at *attach.Attachment) error {
	if !a.spoofCheck {
		return nil
	}
	if err := at.Step(ctx, "spoof check"); err != nil {
		return err
	}
	// DEL has backend.DelBridge do it, also for what was made when the configuration was another one.
	at.Undo.Push("remove the spoof check", func(ctx context.Context) error { return backend.DelSpoofCheck(ctx, at.Key) })
	return backend.AddSpoofCheck(ctx, at.Key, a.port.Attrs().Name, [6]byte(at.ContainerMAC()))
}

// checkSpoofCheck does not take the address that the container's end has now: the
// container can change it.
func checkSpoofCheck(r *plugin.Request, hostEnd string) error {
	reported := plugin.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	mac, err := link.ParseMAC(reported.Mac)
	if err != nil {
		return err
	}
	return backend.CheckSpoofCheck(r.Key, hostEnd, [6]byte(mac))
}
