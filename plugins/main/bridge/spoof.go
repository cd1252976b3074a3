package bridge

import (
	"context"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// packetFilter is what an attachment can have there, for DEL and GC: also what was made when the configuration was another one.
func packetFilter(r *plugin.Request) []backend.Use {
	return []backend.Use{backend.Masquerade(nil), backend.SpoofCheck(r.Results, "", [6]byte{})}
}

// checkSpoofing has the bridge drop what the container sends from any MAC
// address but its own. The container's end is down yet.
func checkSpoofing(ctx context.Context, a *attach.Attachment, c *config, port netlink.Link) error {
	if !c.spoofCheck {
		return nil
	}
	if err := a.Step(ctx, "spoof check"); err != nil {
		return err
	}
	use := backend.SpoofCheck(a.Results, port.Attrs().Name, [6]byte(a.ContainerMAC()))
	a.Undo.Push("remove the spoof check", func(ctx context.Context) error { return backend.Del(ctx, a.Key, nil, use) })
	return use.Add(ctx, backend.Wish{}, a.Key)
}

// checkSpoofCheck does not take the address that the container's end has now: the
// container can change it.
func checkSpoofCheck(ctx context.Context, r *plugin.Request, hostEnd string) error {
	reported := result.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	mac, err := attach.ParseMAC(reported.Mac)
	if err != nil {
		return err
	}
	return backend.SpoofCheck(r.Results, hostEnd, [6]byte(mac)).Check(ctx, backend.Wish{}, r.Key)
}
