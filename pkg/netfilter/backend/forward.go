package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddForward is netfilter.Forwarder's with the backend that is wished for. What
// keeps containers apart is in place before anything is let through.
func AddForward(ctx context.Context, w Wish, key plugin.Key, f netfilter.Forward) error {
	return w.one(
		func(c *nft.Conn) error {
			if err := isolatePort(f); err != nil {
				return err
			}
			if err := c.AddForward(ctx, key, f); err != nil {
				return err
			}
			return marked(c, f).Accept(ctx)
		},
		func(b *iptables.Backend) error { return b.Add(ctx, key, iptables.Forward(f)) })
}

// DelForward is netfilter.Forwarder's in all backends. The rules of iptables that
// accept what nftables marks stay: they are for all, and accept nothing else. That
// the port is isolated goes with the port.
func DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	h, err := look(iptables.Forwarding.Tables())
	if err != nil {
		return err
	}
	defer h.close()
	return errors.Join(
		h.inNFT(func(c *nft.Conn) error { return c.DelForward(ctx, key) }),
		h.delIPTables(ctx, iptables.Forwarding, key, hint))
}

// CheckForward is netfilter.Forwarder's with the backend that is wished for, or
// with the other one if nothing is said: what an attachment has may be from
// before an upgrade.
func CheckForward(ctx context.Context, w Wish, key plugin.Key, f netfilter.Forward) error {
	return w.either(
		func(c *nft.Conn) error {
			if err := c.CheckForward(key, f); err != nil {
				return err
			}
			if err := checkPort(f); err != nil {
				return err
			}
			return marked(c, f).Check(ctx)
		},
		func(b *iptables.Backend) error { return b.Check(ctx, key, iptables.Forward(f)) })
}

// GCForward is netfilter.Forwarder's in all backends.
func GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	return errors.Join(
		h.inNFT(func(c *nft.Conn) error { return c.GCForward(ctx, network, valid) }),
		iptables.On(h.conn).GC(ctx, iptables.Forwarding, network, valid))
}

// ForwardAvailable is Available for forwarding, which needs other things of the
// kernel.
func ForwardAvailable(w Wish) error {
	return w.one((*nft.Conn).ForwardAvailable, (*iptables.Backend).Available)
}

// marked is what iptables has to accept for nftables, which can't accept a packet
// for good.
func marked(c *nft.Conn, f netfilter.Forward) iptables.Marked {
	return iptables.Marked{Mark: nft.ForwardMark, Addrs: f.Addrs, AdminChain: f.AdminChain, Conn: c}
}

// isolatePort keeps the attachment's port of the bridge from exchanging packets
// with other isolated ones, if the policy is that.
func isolatePort(f netfilter.Forward) error {
	if f.Ingress != netfilter.Isolated || f.HostEnd == "" {
		return nil
	}
	port, err := netlink.LinkByName(f.HostEnd)
	if err == nil {
		err = netlink.LinkSetIsolated(port, true)
	}
	if err != nil {
		return fmt.Errorf("isolate the bridge's port %s: %w", f.HostEnd, err)
	}
	return nil
}

func checkPort(f netfilter.Forward) error {
	if f.Ingress != netfilter.Isolated || f.HostEnd == "" {
		return nil
	}
	if !link.PortOption(f.HostEnd, "isolated") {
		return plugin.Errorf(fmt.Sprintf("something changed it after ADD: restart the container, or `bridge link set dev %s isolated on`", f.HostEnd), "the bridge's port %s is not isolated", f.HostEnd)
	}
	return nil
}
