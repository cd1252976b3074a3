package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/result"
)

var subnetsOverlap = codes.Declare(finding.Code{Name: "subnets-overlap", Severity: finding.Error,
	Meaning: "Two containers can have one address, or what is sent to a container goes elsewhere.",
	Remedy:  "another subnet, by `sed -i …` in the network's file"})

// checkSubnets looks for addresses that two networks hand out, or that a route of the host leads elsewhere.
func checkSubnets(_ context.Context, s *subject) (list []Finding, err error) {
	all, err := s.everybodys()
	for i, n := range all {
		for _, other := range all[i+1:] {
			if n.isRouted() && other.isRouted() {
				list = append(list, s.overlaps(n, other)...)
			} else if at := n.together(other); at != "" && n.sharesRange(other) {
				remedy := finding.Say(`give each of the two addresses of its own, by "rangeStart" and "rangeEnd" in %s and %s`, n.File, other.File)
				list = append(list, found(subnetsOverlap, other.Name, remedy, "networks %s and %s, both on %s, can give one address to two containers", n.Name, other.Name, at))
			}
		}
	}
	for _, n := range s.networks {
		if !n.isRouted() {
			continue
		}
		for _, p := range n.subnets() {
			for _, r := range s.routes {
				if by := s.leadsElsewhere(n, p, r); by != "" {
					list = append(list, found(subnetsOverlap, n.Name, s.move(n, p), "network %s has %s, and a route of the host leads to %s by %s",
						n.Name, p, result.Prefix(*r.Dst), by))
				}
			}
		}
	}
	return list, err
}

// everybodys returns the networks of the node's directory, and those of runtimes with a directory of their own. One name has one file of leases,
// wherever the network is.
func (s *subject) everybodys() ([]*network, error) {
	all := slices.Clone(s.networks)
	places, err := s.places()
	for _, p := range places {
		for _, n := range p.networks {
			if !slices.ContainsFunc(all, func(other *network) bool { return other.Name == n.Name }) {
				all = append(all, n)
			}
		}
	}
	return all, err
}

// together returns the link of the host on which containers of two networks are together, "" if there is none.
func (n *network) together(other *network) string {
	for _, p := range n.parts {
		at := p.Segment()
		if at != "" && slices.ContainsFunc(other.parts, func(q *netconf.Part) bool { return q.Segment() == at }) {
			return at
		}
	}
	return ""
}

// overlaps finds subnets of two networks that have addresses in common.
func (s *subject) overlaps(n, other *network) (list []Finding) {
	for _, subnet := range n.subnets() {
		list = append(list, s.overlapsOf(n, subnet, other)...)
	}
	return list
}

// overlapsOf finds a subnet of another network that has addresses of one's. On one bridge they can share a subnet, each with a part of it.
func (s *subject) overlapsOf(n *network, subnet netip.Prefix, other *network) (list []Finding) {
	for _, o := range other.subnets() {
		if !o.Overlaps(subnet) {
			continue
		}
		remedy := s.move(other, o)
		if n.bridge() != "" && n.bridge() == other.bridge() {
			if !n.sharesRange(other) {
				continue
			}
			remedy = finding.Say(`give each of the two a part of %s, by "rangeStart" and "rangeEnd" in %s and %s`, subnet, n.File, other.File)
		}
		list = append(list, found(subnetsOverlap, other.Name, remedy, "networks %s (%s) and %s (%s) can give one address to two containers", n.Name, subnet, other.Name, o))
	}
	return list
}

// sharesRange reports whether two networks hand out some of the same addresses.
func (n *network) sharesRange(other *network) bool {
	return slices.ContainsFunc(n.ranges(), func(a span) bool {
		return slices.ContainsFunc(other.ranges(), func(b span) bool { return a.meets(b) })
	})
}

// ranges returns the addresses that the network's pools hand out.
func (n *network) ranges() (list []span) {
	for _, pool := range n.Pools {
		for text := range strings.SplitSeq(pool.Range, ",") {
			from, to, _ := strings.Cut(text, "-")
			first, err := netip.ParseAddr(from)
			last, err2 := netip.ParseAddr(to)
			if err == nil && err2 == nil {
				list = append(list, span{first, last})
			}
		}
	}
	return list
}

// leadsElsewhere returns the link by which a route leads a part of a network's subnet out of it, "" if it does not.
func (s *subject) leadsElsewhere(n *network, subnet netip.Prefix, r netlink.Route) string {
	if r.Dst == nil || r.Type != unix.RTN_UNICAST || r.LinkIndex == 0 {
		return ""
	}
	to := result.Prefix(*r.Dst)
	if to.IsSingleIP() || to.Bits() < subnet.Bits() || !subnet.Contains(to.Addr()) {
		return "" // a longer prefix would win, and a shorter one loses against the network's own
	}
	l := s.LinkNumbered(r.LinkIndex)
	if l == nil || l.Name == n.gatewayLink() || strings.HasPrefix(l.Owner, n.Name+"/") {
		return ""
	}
	return l.Name
}

// move returns the command that gives a network another subnet, which nothing here has. With containers on the former one the next ADD would fail.
func (s *subject) move(n *network, from netip.Prefix) finding.Remedy {
	if len(n.alive) > 0 {
		return finding.Say("end the %s of network %s first, then give it another subnet, in %s", count(len(n.alive), "container", "containers"), n.Name, n.File)
	}
	again := finding.Say("then start the containers of network %s again", n.Name)
	text, err := os.ReadFile(n.File)
	if err != nil || !strings.Contains(string(text), `"`+from.String()+`"`) || strings.Contains(string(text), `"rangeStart"`) || strings.Contains(string(text), `"gateway"`) {
		return finding.Steps(finding.Say("give network %s another subnet, in %s", n.Name, n.File), again)
	}
	to, err := s.freeSubnet(from)
	if err != nil {
		return finding.Steps(finding.Say("give network %s another subnet, in %s", n.Name, n.File), again)
	}
	return finding.Steps(finding.Run("sed", "-i", fmt.Sprintf(`s|"%s"|"%s"|`, strings.ReplaceAll(from.String(), ".", `\.`), to), n.File), again)
}

// freeSubnet returns a private subnet as large as another, which no network, no route and no address of this node has a part of.
func (s *subject) freeSubnet(like netip.Prefix) (netip.Prefix, error) {
	var taken []netip.Prefix
	for _, n := range s.networks {
		taken = append(taken, n.subnets()...)
	}
	for _, r := range s.routes {
		if r.Dst != nil && !node.IsDefault(r) {
			taken = append(taken, result.Prefix(*r.Dst))
		}
	}
	for _, l := range s.Links() {
		for _, p := range l.Addresses {
			taken = append(taken, p.Masked())
		}
	}
	if like.Addr().Is6() {
		return node.FreeIPv6Subnet(taken)
	}
	return node.FreeSubnet(like.Bits(), taken)
}

// span is addresses from first to last.
type span struct{ first, last netip.Addr }

func (s span) meets(o span) bool {
	return s.first.BitLen() == o.first.BitLen() && s.first.Compare(o.last) <= 0 && o.first.Compare(s.last) <= 0
}
