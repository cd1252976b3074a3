package netlab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// object is a thing by the names of what is known of it.
type object = map[string]any

// fields returns the fields of a struct as an object.
func fields(value any) (o object) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		panic(err) // can't be: it is what a library has decoded
	}
	return o
}

// describe is a line about an object: name and value of each thing that is known of it, but for the names left out.
func describe(prefix string, o object, leftOut ...string) string {
	var line strings.Builder
	line.WriteString(prefix)
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if slices.Contains(leftOut, name) {
			continue
		}
		value, err := json.Marshal(o[name])
		if err != nil {
			panic(err) // can't be: these are plain values
		}
		switch text := strings.Trim(string(value), `"`); text {
		case "", "0", "false", "null", "[]", "{}":
		case "true":
			line.WriteString(" " + name)
		default:
			line.WriteString(" " + name + " " + text)
		}
	}
	return line.String()
}

// interfaceLines describes the links and what belongs to them. It starts again if links have come or gone meanwhile: a part
// of one would look like something that was left behind, and what has gone can't be read.
func interfaceLines() (lines []string, err error) {
	unsettled := Await(func() error {
		same := false
		if lines, same, err = interfaceLinesNow(); same && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil
		}
		return fmt.Errorf("links have come and gone for %v", Patience)
	})
	return lines, cmp.Or(unsettled, err)
}

// interfaceLinesNow is interfaceLines without starting again. It reports whether the links are the same afterwards.
func interfaceLinesNow() (lines []string, same bool, err error) {
	add := func(more []string, failed error) {
		lines, err = append(lines, more...), errors.Join(err, failed)
	}
	links, err := netlink.LinkList()
	names := namesOf(links)
	add(linkLines(links, names))
	add(addressLines(names))
	for name, family := range map[string]int{"ipv4": netlink.FAMILY_V4, "ipv6": netlink.FAMILY_V6} {
		add(routeLines(name, family, names))
		add(ruleLines(name, family))
	}
	add(qdiscLines(names))
	add(sysctlLines(slices.AppendSeq([]string{"all", "default"}, maps.Values(names))))
	now, failed := netlink.LinkList()
	add(nil, failed)
	return lines, maps.Equal(names, namesOf(now)), err
}

// namesOf returns the names of links by their indexes.
func namesOf(links []netlink.Link) map[int]string {
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	return names
}

// linkLines describes what tests look at of links; the rest changes with the carrier, with time or with the kernel.
func linkLines(links []netlink.Link, names map[int]string) (lines []string, err error) {
	ports, err := bridgePorts()
	for _, link := range links {
		a := link.Attrs()
		o := object{
			"up": a.RawFlags&unix.IFF_UP != 0, "noarp": a.RawFlags&unix.IFF_NOARP != 0,
			"promisc": a.RawFlags&unix.IFF_PROMISC != 0, "allmulti": a.RawFlags&unix.IFF_ALLMULTI != 0,
			"mtu": a.MTU, "txqlen": a.TxQLen, "address": a.HardwareAddr.String(), "group": a.Group, "master": names[a.MasterIndex],
			"ifalias": a.Alias, "altnames": a.AltNames, "info_kind": link.Type(),
		}
		if bridge, is := link.(*netlink.Bridge); is {
			o["vlan_filtering"], o["vlan_default_pvid"], o["mcast_snooping"] = bridge.VlanFiltering, bridge.VlanDefaultPVID, bridge.MulticastSnooping
		}
		if port := ports[a.Index]; port != nil {
			o["hairpin"], o["isolated"], o["guard"] = port.Hairpin, port.Isolated, port.Guard
		}
		lines = append(lines, describe("link "+a.Name+":", o))
	}
	return lines, err
}

// bridgePorts returns what bridges have set of their ports, by the ports' indexes. The library lists them for one port at a time.
func bridgePorts() (map[int]*netlink.Protinfo, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	ports := map[int]*netlink.Protinfo{}
	for _, m := range messages {
		port, failed := netlink.LinkDeserialize(&unix.NlMsghdr{Type: unix.RTM_NEWLINK}, m)
		if failed != nil {
			return nil, failed
		}
		// A driver may have something to say, too, after the bridge.
		ports[port.Attrs().Index] = cmp.Or(ports[port.Attrs().Index], port.Attrs().Protinfo)
	}
	return ports, err
}

func addressLines(names map[int]string) (lines []string, err error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, a := range addresses {
		if a.IP.To4() == nil && a.Scope == unix.RT_SCOPE_LINK {
			continue
		}
		o := object{
			"label": a.Label, "scope": netlink.Scope(a.Scope).String(), "broadcast": a.Broadcast,
			"dynamic": a.Flags&unix.IFA_F_PERMANENT == 0, "flags": a.Flags &^ (unix.IFA_F_PERMANENT | unix.IFA_F_TENTATIVE),
		}
		if a.Peer != nil {
			o["peer"] = a.Peer.String()
		}
		lines = append(lines, describe(fmt.Sprintf("address %s: %s", names[a.LinkIndex], a.IPNet), o))
	}
	return lines, err
}

func routeLines(name string, family int, names map[int]string) (lines []string, err error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	for _, r := range routes {
		// The kernel adds and removes these with an IPv6 link-local address or with the carrier of the link. It makes the
		// local route of an IPv6 address some time after the address, which has a line itself.
		ofKernel := r.Table == unix.RT_TABLE_LOCAL && r.Protocol == unix.RTPROT_KERNEL || r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()
		if family == netlink.FAMILY_V6 && ofKernel {
			continue
		}
		var hops []string
		for _, hop := range r.MultiPath {
			hops = append(hops, describe("dev "+names[hop.LinkIndex], fields(hop), "LinkIndex", "Flags"))
		}
		o := fields(r)
		maps.Copy(o, object{
			"dev": names[r.LinkIndex], "MultiPath": hops, "Scope": r.Scope.String(), "Protocol": r.Protocol.String(),
			"onlink": r.Flags&unix.RTNH_F_ONLINK != 0,
		})
		lines = append(lines, describe(fmt.Sprintf("route %s %s", name, r.Dst), o, "Dst", "Family", "Flags", "LinkIndex"))
	}
	return lines, err
}

func ruleLines(name string, family int) (lines []string, err error) {
	rules, err := netlink.RuleList(family)
	for _, r := range rules {
		o := fields(r)
		o["Src"], o["Dst"] = fmt.Sprint(r.Src), fmt.Sprint(r.Dst)
		maps.DeleteFunc(o, func(_ string, value any) bool { return value == -1.0 || value == "<nil>" }) // not set
		lines = append(lines, describe(fmt.Sprintf("rule %s %d:", name, r.Priority), o, "Family", "Priority", "Protocol"))
	}
	return lines, err
}

// qdiscLines describes the qdiscs of all links, but for handles, which are the kernel's choice, and counters.
func qdiscLines(names map[int]string) (lines []string, err error) {
	qdiscs, err := netlink.QdiscList(nil)
	for _, q := range qdiscs {
		name, is := names[q.Attrs().LinkIndex]
		if !is {
			continue // the link has come meanwhile
		}
		o := fields(q)
		o["kind"], o["Parent"] = q.Type(), netlink.HandleStr(q.Attrs().Parent)
		lines = append(lines, describe("qdisc "+name+":", o, "LinkIndex", "Handle", "Refcnt", "QdiscType", "Statistics"))
	}
	return lines, err
}

// sysctlsOf are the per-interface sysctls that CNI plugins change, by family.
var sysctlsOf = map[string][]string{
	"ipv4": {"accept_local", "arp_ignore", "arp_notify", "forwarding", "proxy_arp", "route_localnet", "rp_filter"},
	"ipv6": {"accept_dad", "accept_ra", "autoconf", "disable_ipv6", "forwarding", "proxy_ndp"},
}

func sysctlLines(links []string) (lines []string, err error) {
	for family, keys := range sysctlsOf {
		for _, link := range links {
			dir := "/proc/sys/net/" + family + "/conf/" + link + "/"
			if _, err := os.Stat(dir); err != nil {
				continue // the link has gone meanwhile, or has no such family
			}
			line := "sysctl " + family + " " + link + ":"
			for _, key := range keys {
				value, failed := os.ReadFile(dir + key)
				err = errors.Join(err, failed)
				line += " " + key + "=" + strings.TrimSpace(string(value))
			}
			lines = append(lines, line)
		}
	}
	return lines, err
}
