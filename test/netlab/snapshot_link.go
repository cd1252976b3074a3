package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkNames are the names of a namespace's links by index.
type linkNames map[int]string

// name returns the name of a link; an index of 0 has none, and one that is not in this namespace a placeholder.
func (l linkNames) name(index int) string {
	if index == 0 {
		return ""
	}
	if name, ok := l[index]; ok {
		return name
	}
	return "elsewhere"
}

// dump repeats a netlink dump until nothing has changed under it.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	for {
		items, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return items, err
		}
	}
}

func linkLines() (linkNames, []string, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list links: %w", err)
	}
	ports, err := bridgePorts()
	if err != nil {
		return nil, nil, fmt.Errorf("list bridge ports: %w", err)
	}
	names := linkNames{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	var lines []string
	for _, link := range links {
		lines = append(lines, linkLine(link, names, ports[link.Attrs().Index]))
	}
	return names, lines, nil
}

func linkLine(link netlink.Link, names linkNames, port string) string {
	a := link.Attrs()
	return facts("link", a.Name+":", link.Type(),
		linkFlags(a.RawFlags),
		fact("mtu", a.MTU),
		fact("txqlen", a.TxQLen),
		fact("mac", a.HardwareAddr.String()),
		fact("master", names.name(a.MasterIndex)),
		port,
		fact("group", a.Group),
		fact("alias", a.Alias),
		fact("altnames", strings.Join(a.AltNames, ",")),
		bridgeFacts(link),
	)
}

// linkFlags leaves out the flags that follow the carrier.
func linkFlags(flags uint32) string {
	var set []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.IFF_UP, "up"},
		{unix.IFF_NOARP, "noarp"},
		{unix.IFF_PROMISC, "promisc"},
		{unix.IFF_ALLMULTI, "allmulti"},
	} {
		if flags&f.bit != 0 {
			set = append(set, f.name)
		}
	}
	return strings.Join(set, " ")
}

func bridgeFacts(link netlink.Link) string {
	br, ok := link.(*netlink.Bridge)
	if !ok {
		return ""
	}
	var words []string
	if br.VlanFiltering != nil && *br.VlanFiltering {
		words = append(words, "vlan_filtering")
	}
	if br.MulticastSnooping != nil && !*br.MulticastSnooping {
		words = append(words, "no_multicast_snooping")
	}
	if br.VlanDefaultPVID != nil {
		words = append(words, fmt.Sprint("pvid ", *br.VlanDefaultPVID))
	}
	return strings.Join(words, " ")
}

// bridgePortFlags are the settings of a bridge port that CNI plugins change.
var bridgePortFlags = map[uint16]string{
	nl.IFLA_BRPORT_MODE:     "hairpin",
	nl.IFLA_BRPORT_ISOLATED: "isolated",
	nl.IFLA_BRPORT_GUARD:    "guard",
}

// bridgePorts describes the ports of all bridges by their link index.
func bridgePorts() (map[int]string, error) {
	messages, err := dump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
		return req.Execute(unix.NETLINK_ROUTE, 0)
	})
	if err != nil {
		return nil, err
	}
	ports := map[int]string{}
	for _, message := range messages {
		header := nl.DeserializeIfInfomsg(message)
		attrs, err := nl.ParseRouteAttr(message[header.Len():])
		if err != nil {
			return nil, err
		}
		for _, attr := range attrs {
			if attr.Attr.Type&^unix.NLA_F_NESTED != unix.IFLA_PROTINFO {
				continue
			}
			settings, err := nl.ParseRouteAttr(attr.Value)
			if err != nil {
				return nil, err
			}
			var words []string
			for _, s := range settings {
				if name := bridgePortFlags[s.Attr.Type]; name != "" && s.Value[0] != 0 {
					words = append(words, name)
				}
			}
			slices.Sort(words)
			ports[int(header.Index)] = strings.Join(words, " ")
		}
	}
	return ports, nil
}

func addressLines(names linkNames) ([]string, error) {
	addresses, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var lines []string
	for _, a := range addresses {
		if a.IP.To4() == nil && a.IP.IsLinkLocalUnicast() {
			continue
		}
		lines = append(lines, facts("address", names.name(a.LinkIndex)+":", a.IPNet.String(),
			peer(a),
			fact("broadcast", ipString(a.Broadcast)),
			fact("scope", netlink.Scope(a.Scope).String()),
			addressFlags(a.Flags),
			fact("label", a.Label),
			lifetime(a.ValidLft),
		))
	}
	return lines, nil
}

func peer(a netlink.Addr) string {
	if a.Peer == nil || a.Peer.String() == a.IPNet.String() {
		return ""
	}
	return "peer " + a.Peer.String()
}

func addressFlags(flags int) string {
	var set []string
	for _, f := range []struct {
		bit  int
		name string
	}{
		{unix.IFA_F_NODAD, "nodad"},
		{unix.IFA_F_DADFAILED, "dadfailed"},
		{unix.IFA_F_NOPREFIXROUTE, "noprefixroute"},
		{unix.IFA_F_MANAGETEMPADDR, "mngtmpaddr"},
	} {
		if flags&f.bit != 0 {
			set = append(set, f.name)
		}
	}
	return strings.Join(set, " ")
}

// lifetime tells only whether the address is a temporary one: the rest of its time changes every second.
func lifetime(seconds int) string {
	if seconds == 0 || uint32(seconds) == 0xffffffff {
		return ""
	}
	return "temporary"
}

func ipString(ip net.IP) string {
	if ip == nil {
		return ""
	}
	return ip.String()
}

func qdiscLines(names linkNames) ([]string, error) {
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	var lines []string
	for _, q := range qdiscs {
		a := q.Attrs()
		words := []string{"qdisc", names.name(a.LinkIndex) + ":", q.Type(), "parent " + netlink.HandleStr(a.Parent)}
		if tbf, ok := q.(*netlink.Tbf); ok {
			words = append(words, fmt.Sprintf("rate %d limit %d buffer %d", tbf.Rate, tbf.Limit, tbf.Buffer))
		}
		lines = append(lines, facts(words...))
	}
	return lines, nil
}

// sysctlsOf are the per-interface sysctls that CNI plugins change, by family.
var sysctlsOf = map[string][]string{
	"ipv4": {"accept_local", "arp_ignore", "arp_notify", "forwarding", "proxy_arp", "route_localnet", "rp_filter"},
	"ipv6": {"accept_dad", "accept_ra", "autoconf", "disable_ipv6", "forwarding", "proxy_ndp"},
}

func sysctlLines(names linkNames) ([]string, error) {
	var lines []string
	for family, keys := range sysctlsOf {
		for _, iface := range append(interfaceNames(names), "all", "default") {
			dir := "/proc/sys/net/" + family + "/conf/" + iface + "/"
			if _, err := os.Stat(dir); err != nil {
				continue // the link has gone meanwhile, or has no such family
			}
			var words []string
			for _, key := range keys {
				value, err := os.ReadFile(dir + key)
				if err != nil {
					return nil, err
				}
				words = append(words, key+"="+strings.TrimSpace(string(value)))
			}
			lines = append(lines, "sysctl "+family+" "+iface+": "+strings.Join(words, " "))
		}
	}
	return lines, nil
}

func interfaceNames(names linkNames) []string {
	var all []string
	for _, name := range names {
		all = append(all, name)
	}
	return all
}
