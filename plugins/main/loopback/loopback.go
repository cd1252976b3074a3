// Package loopback sets up the loopback link of a container.
package loopback

import (
	"context"
	"errors"
	"fmt"

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
func (Plugin) Add(ctx context.Context, r *plugin.Request) (result *types100.Result, err error) {
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	err = inside(r, func(lo netlink.Link) error {
		// Before it is set up: setting it down again takes IPv6 addresses from it.
		if err := checkAddresses(lo, r.Netns); err != nil {
			return err
		}
		if !isUp(lo) {
			if err := r.Step(ctx, "set lo up"); err != nil {
				return err
			}
			undo.Push("set lo down", func(context.Context) error { return inside(r, setDown) })
			// The alias tells DEL that this is the attachment's namespace: its path may be another container's by then.
			if err := link.SetUpAs(lo.Attrs().Index, held.Alias(r.Key), 0); err != nil {
				return err
			}
		}
		result = r.PrevResult
		if result == nil {
			result, err = newResult(lo, r.Netns)
		}
		return err
	})
	return result, err
}

func isUp(lo netlink.Link) bool { return lo.Attrs().RawFlags&unix.IFF_UP != 0 }

// checkAddresses refuses a namespace whose lo has been given an address by someone else.
func checkAddresses(lo netlink.Link, path string) error {
	addresses, err := link.Addresses(&netlink.Handle{}, lo, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !a.IP.IsLoopback() {
			return plugin.Errorf("the namespace is used by something else already: remove the address from lo, or give the container a new namespace",
				"loopback interface found with non-loopback address %q in %s", a.IPNet, path)
		}
	}
	return nil
}

// newResult names lo and its first address of each family.
func newResult(lo netlink.Link, sandbox string) (*types100.Result, error) {
	result := &types100.Result{Interfaces: []*types100.Interface{{Name: name, Mac: "00:00:00:00:00:00", Sandbox: sandbox}}}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addresses, err := link.Addresses(&netlink.Handle{}, lo, family)
		if err != nil {
			return nil, err
		}
		if len(addresses) > 0 {
			result.IPs = append(result.IPs, &types100.IPConfig{Address: *addresses[0].IPNet, Interface: new(int)})
		}
	}
	return result, nil
}

// Del sets lo down if ADD has set it up. What the container keeps it from goes with the namespace.
func (Plugin) Del(_ context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	r.WarnOf(inside(r, func(lo netlink.Link) error {
		if lo.Attrs().Alias != held.Alias(r.Key) {
			return nil
		}
		r.Announce("set lo down")
		return setDown(lo)
	}))
	return nil
}

func setDown(lo netlink.Link) error {
	return errors.Join(netlink.LinkSetDown(lo), netlink.LinkSetAlias(lo, ""))
}

// Check looks whether lo is up.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	return inside(r, func(lo netlink.Link) error {
		if isUp(lo) {
			return nil
		}
		return plugin.Errorf("something set it down since ADD: `ip link set lo up` inside, or attach the container again", "loopback interface is down in %s", r.Netns)
	})
}

// Status finds nothing that could be missing.
func (Plugin) Status(context.Context, *plugin.Request) error { return netns.CheckEntry() }

// inside does something with the container's lo.
func inside(r *plugin.Request, do func(lo netlink.Link) error) error {
	return r.Inside(func() error {
		lo, err := netlink.LinkByName(name)
		if err == nil {
			err = do(lo)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.Netns, err)
		}
		return nil
	})
}
