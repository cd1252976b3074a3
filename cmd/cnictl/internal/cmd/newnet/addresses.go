package newnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/result"
)

// Range is addresses of a LAN that nobody else has.
type Range struct{ First, Last netip.Addr }

func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

func (r Range) contains(a netip.Addr) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 }

// ParseRange reads FIRST-LAST.
func ParseRange(text string) (Range, error) {
	from, to, _ := strings.Cut(text, "-")
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, err2 := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || err2 != nil || first.Is4() != last.Is4() || last.Less(first) || first.Zone()+last.Zone() != "" {
		return Range{}, Wrongf("--range %s: write the first and the last address, such as 192.0.2.200-192.0.2.219", text)
	}
	return Range{first, last}, nil
}

// CheckSubnet refuses a subnet that is not written as one, or that has no room.
func CheckSubnet(p netip.Prefix) error {
	switch {
	case p != p.Masked():
		return Wrongf("--subnet %s: it is an address in the subnet %s; write that", p, p.Masked())
	case p.Bits() == 0 || p.Bits() > p.Addr().BitLen()-2:
		return Wrongf("--subnet %s: a subnet for containers has 8 to %d bits of prefix", p, p.Addr().BitLen()-2)
	case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() || p.Addr().Is4In6():
		return Wrongf("--subnet %s: these addresses are not for containers; take private ones, such as 10.112.0.0/24", p)
	}
	return nil
}

// ownSubnet returns the ipam of a network with a subnet of its own, with default routes if the main plugin makes none.
func (m *maker) ownSubnet(routes bool) (*conf.Object, error) {
	for _, p := range m.Subnets {
		if err := CheckSubnet(p); err != nil {
			return nil, err
		}
		if who := m.host.whoHas(p); who != "" {
			return nil, fmt.Errorf("--subnet %s: addresses of it are taken, by %s; leave --subnet out to have a free one chosen", p, who)
		}
	}
	if m.Subnets == nil {
		p, err := node.FreeSubnet(24, m.host.taken())
		if err != nil {
			return nil, fmt.Errorf("%w; say one with --subnet", err)
		}
		m.Subnets = append(m.Subnets, p)
		m.chose("subnet", p.String(), "free: no route, no address and no other network of this host has a part of it")
	}
	if m.IPv6 && !slices.ContainsFunc(m.Subnets, isIPv6) {
		p, err := node.FreeIPv6Subnet(m.host.taken())
		if err != nil {
			return nil, fmt.Errorf("%w; say one with --subnet", err)
		}
		m.Subnets = append(m.Subnets, p)
		m.chose("subnet", p.String(), "free, and chosen at random as RFC 4193 says, so that no other site has it")
	}
	return m.hostLocal(routes)
}

func isIPv6(p netip.Prefix) bool { return p.Addr().Is6() }

// lanAddresses returns the ipam of a network whose containers are on a LAN. master is the link whose addresses say which LAN that is, nil if
// none does.
func (m *maker) lanAddresses(master *Link) (*conf.Object, error) {
	if m.DHCP {
		if m.Subnets != nil || m.Ranges != nil || m.Gateways != nil {
			return nil, Wrongf("--dhcp has the addresses from the LAN's DHCP server: leave --subnet, --range and --gateway out")
		}
		m.chose("addresses", "by DHCP", "the daemon has to run on this node: the plugin dhcp, started as \"dhcp daemon\"")
		return plugin(dhcp), nil
	}
	for _, p := range m.Subnets {
		if err := CheckSubnet(p); err != nil {
			return nil, err
		}
	}
	if m.Subnets == nil {
		if err := m.lanOf(master); err != nil {
			return nil, err
		}
	}
	if master != nil {
		if err := m.checkLAN(master); err != nil {
			return nil, err
		}
	}
	return m.hostLocal(true)
}

// lanOf takes the subnets of the master's addresses in which ranges are.
func (m *maker) lanOf(master *Link) error {
	for _, a := range master.Addresses {
		p := a.Masked()
		if !p.IsSingleIP() && !slices.Contains(m.Subnets, p) && slices.ContainsFunc(m.Ranges, func(r Range) bool { return p.Contains(r.First) }) {
			m.Subnets = append(m.Subnets, p)
			m.chose("subnet", p.String(), "that of the address %s of %s", a, master.Name)
		}
	}
	switch {
	case m.Ranges != nil && m.Subnets == nil:
		return Wrongf("--range %s: %s has no address in a subnet with these; say the subnet too, with --subnet", m.Ranges[0], master.Name)
	case m.Subnets != nil:
		return nil
	}
	lan, suggestion := Suggest(master, m.host)
	if !lan.IsValid() {
		return Wrongf("%s has no IPv4 address that says which LAN it is on: say --subnet and --range, or --dhcp", master.Name)
	}
	or := ", or --dhcp"
	if row(m.Kind).Facts(nil).SharesMAC {
		or = ""
	}
	return Wrongf("say which addresses of the LAN %s are free for containers%s: nobody else may have them, and no DHCP server give them out, such as --range %s", lan, or, suggestion)
}

// Suggest returns the LAN of a master, and addresses at its end that neither the host nor its gateway has. It does not know who else has them.
func Suggest(master *Link, h *Host) (lan netip.Prefix, r Range) {
	for _, a := range master.Addresses {
		if a.Addr().Is4() && a.Bits() <= 28 {
			lan = a.Masked()
			break
		}
	}
	if !lan.IsValid() {
		return lan, r
	}
	taken := append([]netip.Addr{}, h.Gateways...)
	for _, own := range master.Addresses {
		taken = append(taken, own.Addr())
	}
	r.Last = result.Last(lan).Prev() // the very last is the broadcast address
	for slices.Contains(taken, r.Last) {
		r.Last = r.Last.Prev()
	}
	r.First = r.Last
	for size := min(20, 1<<(32-lan.Bits())/4); size > 1 && !slices.Contains(taken, r.First.Prev()); size-- {
		r.First = r.First.Prev()
	}
	return lan, r
}

// checkLAN refuses to hand out what others on the LAN have: the host, its gateway, or everything.
func (m *maker) checkLAN(master *Link) error {
	for _, p := range m.Subnets {
		i := slices.IndexFunc(m.Ranges, func(r Range) bool { return p.Contains(r.First) })
		own := slices.IndexFunc(master.Addresses, func(a netip.Prefix) bool { return p.Contains(a.Addr()) })
		if own >= 0 && i < 0 {
			return Wrongf("--subnet %s: it is the LAN of %s, where others have addresses too; say which are free for containers with --range", p, master.Name)
		}
	}
	for _, r := range m.Ranges {
		for _, a := range master.Addresses {
			if r.contains(a.Addr()) {
				return fmt.Errorf("--range %s: it has %s, the address of this host; choose addresses that nobody has", r, a.Addr())
			}
		}
		for _, g := range m.host.Gateways {
			if r.contains(g) {
				return fmt.Errorf("--range %s: it has %s, the gateway of the LAN; choose addresses that nobody has", r, g)
			}
		}
	}
	return nil
}

// hostLocal returns an ipam with a range set for each subnet, and default routes to the families that have a gateway.
func (m *maker) hostLocal(routes bool) (*conf.Object, error) {
	var sets [][]*conf.Object
	var destinations []*conf.Object
	used := 0
	for _, p := range m.Subnets {
		gateway := m.gatewayIn(p)
		set := []*conf.Object{}
		for _, r := range m.Ranges {
			if !p.Contains(r.First) {
				continue
			}
			if !p.Contains(r.Last) {
				return nil, Wrongf("--range %s: its end is not in %s", r, p)
			}
			used++
			o := rangeOf(p, gateway)
			o.Set("rangeStart", r.First.String())
			o.Set("rangeEnd", r.Last.String())
			set = append(set, o)
		}
		if len(set) == 0 {
			set = append(set, rangeOf(p, gateway))
		}
		sets = append(sets, set)
		if to := defaultOf(p); routes && (gateway.IsValid() || isRoutedAlone(m.Kind)) && !slices.ContainsFunc(destinations, func(o *conf.Object) bool { return string(o.JSON()) == string(to.JSON()) }) {
			destinations = append(destinations, to)
		}
	}
	if used != len(m.Ranges) {
		return nil, Wrongf("--range: one is in none of the subnets %s", m.Subnets)
	}
	for _, g := range m.Gateways {
		if !slices.ContainsFunc(m.Subnets, func(p netip.Prefix) bool { return p.Contains(g) }) {
			return nil, Wrongf("--gateway %s: it is in none of the subnets %s", g, m.Subnets)
		}
	}
	ipam := plugin(files)
	ipam.Set("ranges", sets)
	ipam.Set("routes", destinations)
	return ipam, nil
}

func rangeOf(p netip.Prefix, gateway netip.Addr) *conf.Object {
	o := conf.New()
	o.Set("subnet", p.String())
	if gateway.IsValid() {
		o.Set("gateway", gateway.String())
	}
	return o
}

func defaultOf(p netip.Prefix) *conf.Object {
	o := conf.New()
	o.Set("dst", map[bool]string{true: "0.0.0.0/0", false: "::/0"}[p.Addr().Is4()])
	return o
}

// gatewayIn returns the gateway of a subnet: what was asked for, or the host's own if it is on this LAN.
func (m *maker) gatewayIn(p netip.Prefix) netip.Addr {
	for _, g := range m.Gateways {
		if p.Contains(g) {
			return g
		}
	}
	for _, g := range m.host.Gateways {
		if p.Contains(g) {
			m.chose("gateway", g.String(), "the host's own in this LAN")
			return g
		}
	}
	return netip.Addr{}
}
