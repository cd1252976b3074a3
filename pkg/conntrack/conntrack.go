// Package conntrack makes the kernel forget flows to published ports that it
// would go on sending to where the port led before.
//
// The kernel decides about the destination of a flow when it sees the first
// packet, and keeps to that while packets go on coming. A TCP client whose
// server is gone opens another connection; for UDP and SCTP one that keeps its
// source port, such as a resolver, an agent or a phone, would be in the void
// for as long as it tries. TCP is left alone.
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netlink"
)

// ErrUnavailable says that the kernel has no connection tracking, or no access
// to it over netlink (CONFIG_NF_CT_NETLINK). Ports can be published without.
var ErrUnavailable = errors.New("the kernel does not let connection tracking be read")

// FlushPublished forgets the flows to the host's side of ports that do not lead
// to the container: those from before the ports were published, to the host
// itself, and those to a container that had them earlier. To be called when the
// ports are in the packet filter, in a thread of the host's namespace.
//
// A flow to another container by a rule that is older and still holds is not
// told from these. It is forgotten too, and goes the same way again.
func FlushPublished(ctx context.Context, ports []netfilter.PortMap) error {
	local := &localAddresses{known: map[netip.Addr]bool{}}
	defer local.close()
	return flush(ctx, ports, func(e entry, maps []netfilter.PortMap) (bool, error) {
		m, bound := governing(e.original, maps)
		if m == nil || e.leadsTo == m.Container {
			return false, nil
		}
		// Ports are published on addresses of the host. What only passes it,
		// to port 53 of some other machine, is none of ours.
		if bound {
			return true, nil
		}
		return local.has(e.original.Addr())
	})
}

// FlushWithdrawn forgets the flows that lead from the host's side of ports to
// their containers' addresses. To be called when the ports have left the packet
// filter: a packet that comes in between would begin the flow again.
func FlushWithdrawn(ctx context.Context, ports []netfilter.PortMap) error {
	return flush(ctx, ports, func(e entry, maps []netfilter.PortMap) (bool, error) {
		for _, m := range maps {
			redirected := e.original.Addr() != m.Container.Addr()
			if redirected && e.leadsTo.Addr() == m.Container.Addr() && isAt(m, e.original.Addr()) {
				return true, nil
			}
		}
		return false, nil
	})
}

// governing returns which of the port maps applies to packets to an address: the
// one that is bound to it, else the one for all addresses; nil if there is none.
func governing(original netip.AddrPort, maps []netfilter.PortMap) (governs *netfilter.PortMap, bound bool) {
	for i := range maps {
		switch {
		case maps[i].HostIP == original.Addr():
			return &maps[i], true
		case !maps[i].HostIP.IsValid():
			governs = &maps[i]
		}
	}
	return governs, false
}

func isAt(m netfilter.PortMap, a netip.Addr) bool {
	return !m.HostIP.IsValid() || m.HostIP == a
}

// group is what one listing of the kernel's table is about.
type group struct {
	family   byte // unix.AF_INET or AF_INET6
	protocol uint8
	ports    map[uint16][]netfilter.PortMap // by host port
}

// groups sorts port maps by family and protocol, without those whose flows are
// left alone.
func groups(ports []netfilter.PortMap) (list []*group) {
	for _, m := range ports {
		if m.Protocol != unix.IPPROTO_UDP && m.Protocol != unix.IPPROTO_SCTP {
			continue
		}
		var family byte = unix.AF_INET
		if m.Container.Addr().Is6() {
			family = unix.AF_INET6
		}
		var g *group
		for _, known := range list {
			if known.family == family && known.protocol == m.Protocol {
				g = known
			}
		}
		if g == nil {
			g = &group{family: family, protocol: m.Protocol, ports: map[uint16][]netfilter.PortMap{}}
			list = append(list, g)
		}
		g.ports[m.HostPort] = append(g.ports[m.HostPort], m)
	}
	return list
}

// flush forgets the flows to the ports that are stale. All of them are tried;
// the error is the first one.
func flush(ctx context.Context, ports []netfilter.PortMap, stale func(entry, []netfilter.PortMap) (bool, error)) error {
	todo := groups(ports)
	if len(todo) == 0 {
		return nil
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return explain(err)
	}
	defer conn.Close()
	// Listing makes the kernel look at each slot of its table, of which a
	// machine with more than 4 GB has 262,144 (up to 10 ms). Counting does not.
	if n, err := count(conn); err != nil || n == 0 {
		return explain(err)
	}
	var first error
	for _, g := range todo {
		if err := ctx.Err(); err != nil {
			return errors.Join(first, err)
		}
		entries, err := list(conn, g)
		if err != nil {
			return errors.Join(first, err)
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return errors.Join(first, err)
			}
			is, err := stale(e, g.ports[e.original.Port()])
			if is && err == nil {
				err = remove(conn, e)
			}
			if err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// explain makes ErrUnavailable of how a kernel without ctnetlink refuses its
// messages. nfnetlink says EINVAL to those of a subsystem that it lacks.
func explain(err error) error {
	for _, no := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return err
}
