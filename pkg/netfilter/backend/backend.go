// Package backend chooses between pkg/netfilter's backends, and cleans up in all of them.
//
// What an ADD makes is made by one: the one that is configured, else iptables if something on the host or in the configuration can't
// do without it, else nftables, else iptables. CHECK looks there, and if nothing is configured in the other one too: what an
// attachment has may be from before an upgrade. What a DEL or GC removes may have been made with another configuration, by an earlier
// version, or by the reference plugins; so it looks in all of them. Where nothing is, that is one message of nf_tables, a look for the
// file of iptables' owners, and one for tables of iptables-legacy.
//
// All of it is found again by the attachment's key alone. What is not found is gone, and no error. Hints are the addresses that a runtime
// says the attachment had, nil if it says nothing; they only matter for what the reference plugins made, which does not always tell
// whose it is. results is the directory of libcni's, which say what of the reference plugins' is still in use.
package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conntrack"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The uses of nftables, for those verbs that are not about what an attachment needs.
func masquerading(c *nft.Conn) nft.Use { return c.Masquerade(nil) }
func portMapping(c *nft.Conn) nft.Use  { return c.PortMaps(netfilter.PortMaps{}) }
func forwarding(c *nft.Conn) nft.Use   { return c.Forward(netfilter.Forward{}) }
func spoofChecks(c *nft.Conn) nft.Use  { return c.SpoofCheck("", [6]byte{}) }

// Available reports whether the backend for masquerading and published ports that is wished for, or the one that would stand in for it,
// can be used.
func Available(w Wish) error {
	return w.one(func(c *nft.Conn) error { return masquerading(c).Available() }, (*iptables.Backend).Available)
}

// ForwardAvailable is Available for forwarding, which needs other things of the kernel.
func ForwardAvailable(w Wish) error {
	return w.one(func(c *nft.Conn) error { return forwarding(c).Available() }, (*iptables.Backend).Available)
}

// AddMasquerade makes packets from addresses leave with the host's own address unless they go to the address's own network or are
// multicast. It takes over an address that another attachment held before.
func AddMasquerade(ctx context.Context, w Wish, key plugin.Key, addrs []netip.Prefix) error {
	return w.one(
		func(c *nft.Conn) error { return c.Masquerade(addrs).Add(ctx, key) },
		func(b *iptables.Backend) error { return b.Add(ctx, key, iptables.Masquerade(key, addrs)) })
}

// DelMasquerade takes that back.
func DelMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	return onHost(func(h *host) error { return h.delMasquerade(ctx, key, hint) }, reference.MasqueradeTables(), iptables.Masquerading.Tables())
}

// DelBridge removes what the attachment has for being behind a bridge: the masquerade, as DelMasquerade does, and the spoof check. The
// bridge plugin's DEL removes both whatever its configuration, and saves a look at the host.
func DelBridge(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	return onHost(func(h *host) error {
		return errors.Join(h.delMasquerade(ctx, key, hint), h.delSpoofCheck(ctx, key))
	}, reference.MasqueradeTables(), iptables.Masquerading.Tables(), spoofCheckTables())
}

func (h *host) delMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	_, err := h.del(ctx, key, hint, masquerading, iptables.Masquerading)
	return errors.Join(err, h.ifThere(reference.MasqueradeTables(), func(c *nft.Conn) error { return reference.DelMasquerade(ctx, c, key) }))
}

// CheckMasquerade compares what is there with what AddMasquerade makes.
func CheckMasquerade(ctx context.Context, w Wish, key plugin.Key, addrs []netip.Prefix) error {
	return w.either(
		func(c *nft.Conn) error { return c.Masquerade(addrs).Check(key) },
		func(b *iptables.Backend) error { return b.Check(ctx, key, iptables.Masquerade(key, addrs)) })
}

// GCMasquerade removes what attachments of the network have that are not valid.
func GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	return onHost(func(h *host) error {
		return h.gc(ctx, network, valid, masquerading, iptables.Masquerading, func(c *nft.Conn) error { return reference.GCMasquerade(ctx, c, network, valid) })
	})
}

// AddPortMaps publishes ports of containers on the host. It fails if another attachment has one of them, with an error that names it, or
// takes the port over if that one is gone. It also cuts connections without a connection's end, such as UDP's, that were made before
// and would go on to lead elsewhere.
func AddPortMaps(ctx context.Context, w Wish, key plugin.Key, ports netfilter.PortMaps) error {
	err := w.one(
		func(c *nft.Conn) error { return c.PortMaps(ports).Add(ctx, key) },
		func(b *iptables.Backend) error { return b.Add(ctx, key, iptables.PortMaps(key, ports)) })
	if err != nil {
		return err
	}
	if err := conntrack.FlushPublished(ctx, ports.Maps); err != nil {
		return errors.Join(err, DelPortMaps(context.WithoutCancel(ctx), ports.Results, key, nil))
	}
	return nil
}

// DelPortMaps takes them back. Connections to the container that have no end of their own are cut.
func DelPortMaps(ctx context.Context, results string, key plugin.Key, hint []netip.Prefix) error {
	return onHost(func(h *host) error {
		removed, err := h.del(ctx, key, nil, portMapping, iptables.PortMapping)
		return errors.Join(err,
			h.ifThere(reference.HostPortTables(), func(c *nft.Conn) error { return reference.DelPortMaps(ctx, c, results, key, hint) }),
			conntrack.FlushWithdrawn(ctx, removed))
	}, reference.HostPortTables(), iptables.PortMapping.Tables())
}

// CheckPortMaps compares what is there with what AddPortMaps makes.
func CheckPortMaps(ctx context.Context, w Wish, key plugin.Key, ports netfilter.PortMaps) error {
	return w.either(
		func(c *nft.Conn) error { return c.PortMaps(ports).Check(key) },
		func(b *iptables.Backend) error { return b.Check(ctx, key, iptables.PortMaps(key, ports)) })
}

// GCPortMaps removes what attachments of the network have that are not valid.
func GCPortMaps(ctx context.Context, results, network string, valid []plugin.Key) error {
	return onHost(func(h *host) error {
		return h.gc(ctx, network, valid, portMapping, iptables.PortMapping, func(c *nft.Conn) error { return reference.GCPortMaps(ctx, c, results, valid) })
	})
}

// CheckConditions has the backend that conditions are for say whether they are right, as far as it can before there are any ports.
func CheckConditions(ctx context.Context, w Wish, conditions4, conditions6 []string) error {
	if w.NFTables == "" {
		return nil
	}
	return nft.CheckConditions(ctx, netfilter.PortMaps{Conditions4: conditions4, Conditions6: conditions6})
}

// AddForward lets containers' packets be forwarded by a host that otherwise drops them, and keeps containers of different networks
// apart. What keeps them apart is in place before anything is let through.
func AddForward(ctx context.Context, w Wish, key plugin.Key, f netfilter.Forward) error {
	return w.one(
		func(c *nft.Conn) error {
			if err := isolatePort(f); err != nil {
				return err
			}
			if err := c.Forward(f).Add(ctx, key); err != nil {
				return err
			}
			return marked(c, f).Accept(ctx)
		},
		func(b *iptables.Backend) error { return b.Add(ctx, key, iptables.Forward(f)) })
}

// DelForward takes that back. The rules of iptables that accept what nftables marks stay: they are for all, and accept nothing else.
// That the port is isolated goes with the port.
func DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	return onHost(func(h *host) error {
		_, err := h.del(ctx, key, hint, forwarding, iptables.Forwarding)
		return err
	}, iptables.Forwarding.Tables())
}

// CheckForward compares what is there with what AddForward makes.
func CheckForward(ctx context.Context, w Wish, key plugin.Key, f netfilter.Forward) error {
	return w.either(
		func(c *nft.Conn) error {
			if err := c.Forward(f).Check(key); err != nil {
				return err
			}
			if isolates(f) && !link.PortOption(f.HostEnd, "isolated") {
				return plugin.Errorf(fmt.Sprintf("something changed it after ADD: restart the container, or `bridge link set dev %s isolated on`", f.HostEnd),
					"the bridge's port %s is not isolated", f.HostEnd)
			}
			return marked(c, f).Check(ctx)
		},
		func(b *iptables.Backend) error { return b.Check(ctx, key, iptables.Forward(f)) })
}

// GCForward removes what attachments of the network have that are not valid.
func GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	return onHost(func(h *host) error {
		nothing := func(*nft.Conn) error { return nil } // the reference plugin has no nftables for this
		return h.gc(ctx, network, valid, forwarding, iptables.Forwarding, nothing)
	})
}

// marked is what iptables has to accept for nftables, which can't accept a packet for good.
func marked(c *nft.Conn, f netfilter.Forward) iptables.Marked {
	return iptables.Marked{Mark: nft.ForwardMark, Addrs: f.Addrs, AdminChain: f.AdminChain, Conn: c}
}

// isolates reports whether the attachment's port of the bridge is not to exchange packets with other isolated ones.
func isolates(f netfilter.Forward) bool { return f.Ingress == netfilter.Isolated && f.HostEnd != "" }

func isolatePort(f netfilter.Forward) error {
	if !isolates(f) {
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

// The check of the MAC address that a container sends from is nftables' alone.

// spoofCheckTables are the tables in which there can be something to remove: ours, and the reference plugin's.
func spoofCheckTables() []nftables.Table {
	return append(reference.SpoofCheckTables(), nft.SpoofCheckTable())
}

// AddSpoofCheck has packets dropped that the host's end of the attachment's veth gets from any other MAC address.
func AddSpoofCheck(ctx context.Context, key plugin.Key, hostEnd string, mac [6]byte) error {
	return withNFT(func(c *nft.Conn) error { return c.SpoofCheck(hostEnd, mac).Add(ctx, key) })
}

// DelSpoofCheck removes that, and what the reference bridge plugin has made for the attachment.
func DelSpoofCheck(ctx context.Context, key plugin.Key) error {
	return onHost(func(h *host) error { return h.delSpoofCheck(ctx, key) }, spoofCheckTables())
}

func (h *host) delSpoofCheck(ctx context.Context, key plugin.Key) error {
	return errors.Join(
		h.ifThere(spoofCheckTables(), func(c *nft.Conn) error {
			_, err := spoofChecks(c).Del(ctx, key)
			return err
		}),
		h.ifThere(reference.SpoofCheckTables(), func(c *nft.Conn) error { return reference.DelSpoofCheck(ctx, c, key) }))
}

// CheckSpoofCheck compares what is there with what AddSpoofCheck makes. What the reference plugin has made will do.
func CheckSpoofCheck(key plugin.Key, hostEnd string, mac [6]byte) error {
	return withNFT(func(c *nft.Conn) error {
		err := c.SpoofCheck(hostEnd, mac).Check(key)
		if err == nil {
			return nil
		}
		if there, asked := reference.HasSpoofCheck(c, key); there && asked == nil {
			return nil
		}
		return err
	})
}

// GCSpoofCheck removes what attachments of the network have that are not valid.
func GCSpoofCheck(ctx context.Context, results, network string, valid []plugin.Key) error {
	return ignoreUnavailable(withNFT(func(c *nft.Conn) error {
		return errors.Join(spoofChecks(c).GC(ctx, network, valid), reference.GCSpoofCheck(ctx, c, results, valid))
	}))
}

// SpoofCheckAvailable reports whether the kernel has what the check needs.
func SpoofCheckAvailable() error {
	return withNFT(func(c *nft.Conn) error { return spoofChecks(c).Available() })
}
