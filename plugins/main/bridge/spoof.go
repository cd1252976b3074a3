package bridge

import (
	"context"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// packetFilter is what an attachment can have there, for DEL and GC: also what was made when the configuration was another one.
func packetFilter() []netfilter.Feature {
	return []netfilter.Feature{netfilter.Masquerade(nil), netfilter.SpoofCheck("", [6]byte{})}
}

// checkSpoofing has the bridge drop what the container sends from any MAC
// address but its own. The container's end is still down.
func checkSpoofing(ctx context.Context, a *attach.Attachment, c *config, port netlink.Link) error {
	if !c.spoofCheck {
		return nil
	}
	if err := a.Step(ctx, "spoof check"); err != nil {
		return err
	}
	check := netfilter.SpoofCheck(port.Attrs().Name, [6]byte(a.ContainerMAC()))
	a.Undo.Push("remove the spoof check", func(ctx context.Context) error { return netfilter.Del(ctx, a.Request, nil, check) })
	return check.Add(ctx, netfilter.Wish{}, a.Request)
}

// mendSpoofCheck does not take the address that the container's end has now: the
// container can change it.
func mendSpoofCheck(ctx context.Context, r *plugin.Request, c *config, hostEnd string, m *plugin.Mender) error {
	if !c.spoofCheck || m.IsOver() {
		return nil
	}
	mac, err := attach.ParseMAC(result.ContainerInterface(r.PrevResult, r.IfName, r.Netns).Mac)
	if err != nil {
		return err
	}
	check := netfilter.SpoofCheck(hostEnd, [6]byte(mac))
	m.Mend(check.Check(ctx, netfilter.Wish{}, r), "check what "+hostEnd+" sends for spoofed MAC addresses",
		func() error { return check.Repair(ctx, netfilter.Wish{}, r) })
	return nil
}
