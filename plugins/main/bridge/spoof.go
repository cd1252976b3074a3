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
func packetFilter() []netfilter.Thing {
	return []netfilter.Thing{netfilter.Masquerade{}, netfilter.SpoofCheck{}}
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
	check := netfilter.SpoofCheck{HostEnd: port.Attrs().Name, MAC: [6]byte(a.ContainerMAC())}
	a.Undo.Push("remove the spoof check", func(ctx context.Context) error { return netfilter.Del(ctx, a.Request, nil, check) })
	return check.Add(ctx, a.Key)
}

// checkSpoofCheck does not take the address that the container's end has now: the
// container can change it.
func checkSpoofCheck(r *plugin.Request, hostEnd string) error {
	check, err := reportedSpoofCheck(r, hostEnd)
	if err != nil {
		return err
	}
	return check.Check(r.Key)
}

func reportedSpoofCheck(r *plugin.Request, hostEnd string) (check netfilter.SpoofCheck, err error) {
	reported := result.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	mac, err := attach.ParseMAC(reported.Mac)
	if err != nil {
		return check, err
	}
	return netfilter.SpoofCheck{HostEnd: hostEnd, MAC: [6]byte(mac)}, nil
}

func repairSpoofCheck(ctx context.Context, r *plugin.Request, hostEnd string) error {
	check, err := reportedSpoofCheck(r, hostEnd)
	if err != nil || check.Check(r.Key) == nil {
		return err
	}
	r.Announce("check what " + hostEnd + " sends for spoofed MAC addresses")
	return check.Repair(ctx, r.Key)
}
