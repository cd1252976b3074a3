// Package loopback sets up the loopback link of a container.
package loopback

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the loopback plugin. It works on the link "lo" whatever CNI_IFNAME says.
type Plugin struct{}

const name = "lo"

// Add sets lo up. The kernel then gives it its addresses.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	h, lo, err := find(r)
	if err != nil {
		return nil, err
	}
	// Before it is set up: setting it down again takes IPv6 addresses from it.
	if err := checkAddresses(h, lo, r.Netns); err != nil {
		return nil, err
	}
	if !isUp(lo) {
		if err := r.Step(ctx, "set lo up"); err != nil {
			return nil, err
		}
		undo.Push("set lo down", func(context.Context) error { return setDown(h, lo) })
		// By the alias DEL knows that this is the attachment's namespace: its path may be another container's by then.
		if err := r.Inside(func() error { return link.SetUpAs(lo.Attrs().Index, held.Alias(r.Key)) }); err != nil {
			return nil, fmt.Errorf("set lo of %s up: %w", r.Netns, err)
		}
	}
	if r.PrevResult != nil {
		return r.PrevResult, nil
	}
	return newResult(h, lo, r.Netns)
}

// find returns the container's lo.
func find(r *plugin.Request) (*netlink.Handle, netlink.Link, error) {
	h, err := r.LinksInside()
	if err != nil {
		return nil, nil, err
	}
	lo, err := h.LinkByName(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", r.Netns, err)
	}
	return h, lo, nil
}

func isUp(lo netlink.Link) bool { return lo.Attrs().RawFlags&unix.IFF_UP != 0 }

// checkAddresses refuses a namespace whose lo has been given an address by someone else.
func checkAddresses(h *netlink.Handle, lo netlink.Link, path string) error {
	addresses, err := link.Addresses(h, lo, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !a.IP.IsLoopback() {
			return plugin.CodeErrorf(types.ErrInvalidNetNS, "the namespace is used by something else already: remove the address from lo, or give the container a new namespace",
				"loopback interface found with non-loopback address %q in %s", a.IPNet, path)
		}
	}
	return nil
}

// newResult names lo and its first address of each family.
func newResult(h *netlink.Handle, lo netlink.Link, sandbox string) (*types100.Result, error) {
	result := &types100.Result{Interfaces: []*types100.Interface{{Name: name, Mac: "00:00:00:00:00:00", Sandbox: sandbox}}}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addresses, err := link.Addresses(h, lo, family)
		if err != nil {
			return nil, err
		}
		if len(addresses) > 0 {
			result.IPs = append(result.IPs, &types100.IPConfig{Address: *addresses[0].IPNet, Interface: new(int)})
		}
	}
	return result, nil
}

// Del sets lo down if ADD has set it up. If the container keeps it from that, lo goes with the namespace.
func (Plugin) Del(_ context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	h, lo, err := find(r)
	if err == nil && lo.Attrs().Alias == held.Alias(r.Key) {
		r.Announce("set lo down")
		err = setDown(h, lo)
	}
	r.WarnOf(err)
	return nil
}

func setDown(h *netlink.Handle, lo netlink.Link) error {
	return errors.Join(h.LinkSetDown(lo), h.LinkSetAlias(lo, ""))
}

// Mend looks whether lo is up. The alias of lo says whose it is: in the namespace of another container it is left alone.
func (Plugin) Mend(_ context.Context, r *plugin.Request, m *plugin.Mender) error {
	if r.HostSide {
		return nil
	}
	_, lo, err := find(r)
	if err != nil || isUp(lo) {
		return err
	}
	down := plugin.Errorf("something set it down since ADD: "+plugin.RepairRemedy, "loopback interface is down in %s", r.Netns)
	m.Mend(down, "", func() error {
		if alias := lo.Attrs().Alias; alias != "" && alias != held.Alias(r.Key) {
			return plugin.Errorf("restart the container", "lo of %s is another attachment's: %w", r.Netns, plugin.ErrLost)
		}
		r.Announce("set lo up")
		return r.Inside(func() error { return link.SetUpAs(lo.Attrs().Index, lo.Attrs().Alias) })
	})
	return nil
}

// Status reports whether containers can be entered.
func (Plugin) Status(context.Context, *plugin.Request) error { return netns.CheckEntry() }
