package bridge

import (
	"context"
	"errors"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/bridgefilter"
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
	at.Undo.Push("remove the spoof check", func(ctx context.Context) error { return removeSpoofCheck(ctx, at.Key) })
	return withBridgeFilter(func(t *bridgefilter.Table) error {
		return t.AddSpoofCheck(ctx, at.Key, a.port.Attrs().Name, [6]byte(at.ContainerMAC()))
	})
}

// checkSpoofCheck does not take the address that the container's end has now: the
// container can change it.
func checkSpoofCheck(ctx context.Context, r *plugin.Request, hostEnd string) error {
	reported := plugin.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	mac, err := link.ParseMAC(reported.Mac)
	if err != nil {
		return err
	}
	return withBridgeFilter(func(t *bridgefilter.Table) error { return t.CheckSpoofCheck(ctx, r.Key, hostEnd, [6]byte(mac)) })
}

// removeSpoofCheck is for an ADD that fails. DEL has backend.DelBridge do it, also
// for what was made when the configuration was another one.
func removeSpoofCheck(ctx context.Context, key plugin.Key) error {
	return ifAvailable(withBridgeFilter(func(t *bridgefilter.Table) error { return t.DelSpoofCheck(ctx, key) }))
}

func collectSpoofChecks(ctx context.Context, r *plugin.Request) error {
	return ifAvailable(withBridgeFilter(func(t *bridgefilter.Table) error { return t.GCSpoofCheck(ctx, r.Network, r.ValidKeys()) }))
}

func spoofCheckAvailable() error { return withBridgeFilter((*bridgefilter.Table).Available) }

func withBridgeFilter(do func(*bridgefilter.Table) error) error {
	t, err := bridgefilter.Open()
	if err != nil {
		return err
	}
	defer t.Close()
	return do(t)
}

// ifAvailable is for what removes things: nothing is in the kernel that it can't
// have.
func ifAvailable(err error) error {
	if errors.Is(err, bridgefilter.ErrUnavailable) {
		return nil
	}
	return err
}
