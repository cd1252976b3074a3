package nft

import (
	"context"
	"errors"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/bridgefilter"
	"github.com/cnibox/cnibox/pkg/netfilter/holding"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var _ netfilter.Forwarder = (*Table)(nil)

func (t *Table) forwarding() *holding.Table {
	return &holding.Table{Ruleset: forwarding(), Conn: t.conn}
}

// AddForward implements netfilter.Forwarder. What keeps containers apart is in
// place before anything is let through.
func (t *Table) AddForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	things, err := forwardThings(f)
	if err != nil {
		return err
	}
	ports := bridgefilter.On(t.conn)
	if f.Ingress == netfilter.Isolated && f.HostEnd != "" {
		err = ports.AddIsolated(ctx, key, f.HostEnd)
	} else {
		err = ports.DelIsolated(ctx, key)
	}
	if err != nil {
		return err
	}
	if err := t.forwarding().Hold(ctx, holding.HolderOf(key, useForward), things); err != nil {
		return err
	}
	return t.marked(f).Accept(ctx)
}

// DelForward implements netfilter.Forwarder. The rules of iptables that accept
// what is marked stay: they are for all, and accept nothing else.
func (t *Table) DelForward(ctx context.Context, key plugin.Key, _ []netip.Prefix) error {
	return errors.Join(
		t.forwarding().Release(ctx, holding.HolderOf(key, useForward)),
		bridgefilter.On(t.conn).DelIsolated(ctx, key))
}

// CheckForward implements netfilter.Forwarder.
func (t *Table) CheckForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	things, err := forwardThings(f)
	if err != nil {
		return err
	}
	if err := t.forwarding().Check(ctx, holding.HolderOf(key, useForward), things); err != nil {
		return err
	}
	if f.Ingress == netfilter.Isolated && f.HostEnd != "" {
		if err := bridgefilter.On(t.conn).CheckIsolated(ctx, key, f.HostEnd); err != nil {
			return err
		}
	}
	return t.marked(f).Check()
}

// GCForward implements netfilter.Forwarder.
func (t *Table) GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	return errors.Join(
		t.forwarding().Collect(ctx, network, useForward, valid),
		bridgefilter.On(t.conn).GCIsolated(ctx, network, valid))
}

// ForwardAvailable tries whether the kernel takes what forwarding needs, without
// leaving anything in it.
func (t *Table) ForwardAvailable() error { return t.forwarding().Available() }

// marked is what iptables has to accept.
func (t *Table) marked(f netfilter.Forward) iptables.Marked {
	return iptables.Marked{Mark: forwardMark, Addrs: f.Addrs, AdminChain: f.AdminChain, Conn: t.conn}
}

func forwardThings(f netfilter.Forward) ([]holding.Thing, error) {
	var things []holding.Thing
	seen := map[netip.Addr]bool{}
	for _, a := range f.Addrs {
		if !seen[a] {
			seen[a] = true
			things = append(things, addressThing(a))
		}
	}
	if f.Ingress == netfilter.Open {
		return things, nil
	}
	if f.Bridge == "" || len(f.Bridge) > maxLinkName {
		return nil, plugin.ConfigError("chain the firewall plugin behind one that connects containers to a bridge, such as bridge",
			"ingressPolicy: %q is no bridge", f.Bridge)
	}
	things = append(things, bridgeThing(forwardProtected, f.Bridge))
	if f.Ingress == netfilter.Isolated {
		things = append(things, bridgeThing(forwardIsolated, f.Bridge))
	}
	return things, nil
}

// maxLinkName is the length of the longest name of a link.
const maxLinkName = 15
