// Package loopback sets up the loopback link of a container.
package loopback

import (
	"context"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the loopback plugin. It works on the link "lo" whatever CNI_IFNAME
// says.
type Plugin struct{}

// The name and the index that lo has in every network namespace
// (LOOPBACK_IFINDEX of the kernel's net/net_namespace.h).
const (
	name  = "lo"
	index = 1
)

// Add sets lo up. The kernel then gives it its addresses.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (result *types100.Result, err error) {
	c, err := open(r)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// Before lo is set up: setting it down again takes IPv6 addresses from it.
	if err := checkAddresses(c, r.Netns); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	if err := setUp(ctx, r, c, &undo); err != nil {
		return nil, err
	}
	if r.PrevResult != nil {
		return r.PrevResult, nil
	}
	addresses, err := c.Addresses(index)
	if err != nil {
		return nil, err
	}
	return newResult(r.Netns, addresses), nil
}

// checkAddresses refuses a namespace whose lo has been given an address by
// someone else.
func checkAddresses(c *link.Conn, path string) error {
	addresses, err := c.Addresses(index)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !a.Prefix.Addr().IsLoopback() {
			return plugin.Errorf("the namespace is used by something else already: remove the address from lo, or give the container a new namespace", "loopback interface found with non-loopback address %q in %s", a.Prefix, path)
		}
	}
	return nil
}

// setUp sets lo up, unless it is.
func setUp(ctx context.Context, r *plugin.Request, c *link.Conn, undo *plugin.Undo) error {
	lo, err := c.ByIndex(index)
	if err != nil || lo.Up() {
		return err
	}
	if err := r.Step(ctx, "set lo up"); err != nil {
		return err
	}
	undo.Push("set lo down", func(context.Context) error { return c.SetDown(index) })
	return c.SetUp(index)
}

// newResult names lo and its first address of each family.
func newResult(sandbox string, addresses []link.Address) *types100.Result {
	result := &types100.Result{Interfaces: []*types100.Interface{{Name: name, Mac: "00:00:00:00:00:00", Sandbox: sandbox}}}
	for _, v4 := range []bool{true, false} {
		for _, a := range addresses {
			if a.Prefix.Addr().Is4() == v4 {
				result.IPs = append(result.IPs, &types100.IPConfig{Address: plugin.IPNet(a.Prefix), Interface: new(int)})
				break
			}
		}
	}
	return result
}

// Del sets lo down, if the namespace is still there.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	c, err := open(r)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := r.Step(ctx, "set lo down"); err != nil {
		return err
	}
	return c.SetDown(index)
}

// Check looks whether lo is up.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	c, err := open(r)
	if err != nil {
		return err
	}
	defer c.Close()
	lo, err := c.ByIndex(index)
	if err != nil {
		return err
	}
	if !lo.Up() {
		return plugin.Errorf("something set it down since ADD: `ip link set lo up` inside, or attach the container again", "loopback interface is down in %s", r.Netns)
	}
	return nil
}

// Status finds nothing that could be missing.
func (Plugin) Status(context.Context, *plugin.Request) error { return nil }

// GC has nothing to do: lo goes with its namespace.
func (Plugin) GC(context.Context, *plugin.Request) error { return nil }

// open opens a connection into the container's namespace.
func open(r *plugin.Request) (*link.Conn, error) {
	c, err := link.OpenIn(r.NS())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Netns, err)
	}
	return c, nil
}
