package conformance

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// hostileAct is what a container does in its own namespace after ADD: commands of ip, one on each line. MAC and INDEX are those of its
// interface, TABLE is the routing table that sbr or vrf has chosen.
type hostileAct struct{ name, commands string }

// hostileActs are of any container, also of one that has no interface but lo.
func hostileActs() []hostileAct {
	var names, rules, routes, addresses strings.Builder
	for i := range 496 { // as many as a link can have: an answer of the kernel that names them is longer than 64 KiB
		fmt.Fprintf(&names, "link property add dev LINK altname %0127d\n", i)
	}
	for i := range 300 {
		fmt.Fprintf(&rules, "rule add from 10.47.%d.%d table %d\n", i/250, i%250, 1000+i)
		fmt.Fprintf(&routes, "route add 10.200.%d.%d dev eth0 table %d\n", i/250, i%250, 1000+i%10)
		fmt.Fprintf(&addresses, "address add 10.48.%d.%d/32 dev eth0\n", i/250, i%250)
	}
	const gone = "link del eth0\n"
	const renamed = "link set eth0 down\nlink set eth0 name net7\n"
	const loRenamed = "link set lo down\nlink set lo name eth0\nlink set eth0 address MAC up\n"
	return []hostileAct{
		{"nothing", ""},
		{"its interface has another name", renamed},
		{"its interface has another name, and another link its name", renamed + "link add eth0 address MAC type veth peer name other0\n"},
		{"its interface has another name, and another link its name as an alternative one", renamed +
			"link add other0 address MAC type veth peer name other1\nlink property add dev other0 altname eth0\n"},
		{"its interface is gone", gone},
		{"its interface is gone, and lo has its name", gone + loRenamed},
		{"its interface is gone, and lo has its name and alternative ones", gone + loRenamed + strings.ReplaceAll(names.String(), "LINK", "eth0")},
		{"its interface is gone, and another link has its name and index", gone + "link add eth0 index INDEX address MAC type bridge\n"},
		{"its interface is gone, and another link has its index and alternative names", gone +
			"link add other0 index INDEX type bridge\n" + strings.ReplaceAll(names.String(), "LINK", "other0")},
		{"its interface is gone, and a bridge has its name", gone + "link add eth0 address MAC type bridge\n"},
		{"its interface is gone, and a tap has its name", gone + "tuntap add mode tap name eth0\nlink set eth0 address MAC\n"},
		{"its interface is gone, and a tun has its name", gone + "tuntap add mode tun name eth0\n"},
		{"its interface has alternative names", strings.ReplaceAll(names.String(), "LINK", "eth0")},
		{"lo has another name", "link set lo down\nlink set lo name lo7\n"},
		{"lo has another name, and another link its name", "link set lo down\nlink set lo name lo7\nlink add lo type veth peer name other0\n"},
		{"lo has alternative names", strings.ReplaceAll(names.String(), "LINK", "lo")},
		{"lo has an alias", "link set lo alias eth0\n"},
		{"its interface is in a bridge", "link add br7 up type bridge\nlink set eth0 nomaster\nlink set eth0 master br7\n"},
		{"its interface is in a bond", "link add bond7 type bond\nlink set eth0 down\nlink set eth0 nomaster\nlink set eth0 master bond7\n"},
		{"its interface is in a VRF", "link add blue up type vrf table 77\nlink set eth0 nomaster\nlink set eth0 master blue\n"},
		{"its interface has links on it", "link add link eth0 name up0 up type macvlan mode bridge\nlink add link up0 name up1 up type macvlan mode bridge\n"},
		{"its interface has a VLAN on it", "link add link eth0 name up0 up type vlan id 7\n"},
		{"its interface is down, with another MTU and MAC address", "link set eth0 down mtu 100 address 02:66:66:66:66:66 alias x txqueuelen 0 promisc on\n"},
		{"another link of the segment has the MAC address", "link add link eth0 name up0 type macvlan mode bridge\n" +
			"link set eth0 address 02:66:66:66:66:66\nlink set up0 address MAC up\n"},
		{"its interface has no addresses", "address flush dev eth0\n"},
		{"its interface has many addresses", addresses.String()},
		{"there are many rules", rules.String()},
		{"there are rules of any kind", anyRules("1000")},
		{"there are no rules", "rule flush\nrule del pref 0\nrule del pref 32766\nrule del pref 32767\n-6 rule flush\n-6 rule del pref 0\n-6 rule del pref 32766\n"},
		{"there are many routes", routes.String()},
		{"there are routes of any kind", anyRoutes("1000")},
		{"there are links of any kind", anyLinks},
	}
}

// anyRules are rules to a table that not everybody can express.
func anyRules(table string) string {
	var out strings.Builder
	for i, rule := range []string{"tun_id 7", "fwmark 7/15", "tos 8", "iif eth0", "oif eth0", "uidrange 1-7", "ipproto tcp dport 1-7 sport 8", "not from 10.99.0.1",
		"from 10.47.0.2 suppress_prefixlength 3", "dscp 7", "from 10.47.0.2 dsfield 4", "to 10.9.0.0/16"} {
		for _, family := range []string{"", "-6 "} {
			if family == "" || !strings.Contains(rule, "10.") {
				fmt.Fprintf(&out, "%srule add pref %d %s table %s\n", family, 2000+i, rule, table)
			}
		}
	}
	return out.String() + "rule add pref 3000 l3mdev\nrule add pref 3001 from 10.47.0.2 goto 32766\nrule add pref 3002 from 10.47.0.2 blackhole\n"
}

// anyRoutes are routes in a table that not everybody can express.
func anyRoutes(table string) string {
	var out strings.Builder
	for i, route := range []string{"encap ip id 7 dst 10.47.0.9 dev eth0", "encap mpls 100/200 dev eth0", "encap ip6 id 7 dst fd00::7 dev eth0", "nhid 7",
		"nexthop dev eth0 weight 2 nexthop dev lo", "nexthop dev eth0 encap ip id 7 dst 10.47.0.9 nexthop dev eth0 weight 3", "via inet6 fe80::7 dev eth0",
		"dev eth0 realm 7 tos 8 window 7 rtt 7ms cwnd 7 ssthresh 7 hoplimit 7 features ecn quickack 1 congctl reno"} {
		if route == "nhid 7" {
			out.WriteString("nexthop add id 7 dev eth0\nnexthop add id 8 group 7\n")
		}
		fmt.Fprintf(&out, "route add 10.99.%d.0/24 %s table %s\n", i, route, table)
	}
	for i, route := range []string{"encap seg6 mode encap segs fd00::7,fd00::8 dev eth0", "encap seg6local action End dev eth0",
		"encap seg6local action End.BM endpoint nope dev eth0", "encap rpl segs fd00::7 dev eth0",
		"encap ioam6 trace prealloc type 0x800000 ns 1 size 12 dev eth0", "expires 100 dev eth0 pref high", "from fd00:9::/64 dev eth0", "nhid 9"} {
		if route == "nhid 9" {
			out.WriteString("-6 nexthop add id 9 dev eth0\n")
		}
		fmt.Fprintf(&out, "-6 route add fd00:%d::/32 %s table %s\n", 900+i, route, table)
	}
	for _, kind := range []string{"blackhole", "unreachable", "prohibit", "throw"} {
		fmt.Fprintf(&out, "route add %s 10.98.0.0/24 metric %d table %s\n", kind, len(kind), table)
	}
	return out.String() + "-M route add 100 as 200 via inet 10.47.0.9\n-M route add 101 dev eth0\n"
}

// anyLinks are of kinds that add no link to every namespace.
const anyLinks = `link add x1 type dummy
link add x2 type vxlan id 7 dev eth0 dstport 4789
link add x3 type geneve id 7 remote 10.47.0.9
link add x4 type wireguard
link add x5 link eth0 type macsec
link add x6 type ifb
link add x7 type xfrm if_id 7
link add x8 type netkit
link add x9 type bareudp dstport 7 ethertype mpls_uc
link add x10 type amt discovery 10.47.0.2 local 10.47.0.2 dev eth0
link add x11 type nlmon
link add x12 link eth0 type macvtap
link add x13 link eth0 type ipvlan
link add x14 type team
link add x15 type hsr slave1 eth0 slave2 lo
link add x16 type vcan
`

// onTable are acts against the table that sbr or vrf has chosen.
func onTable() []hostileAct {
	return []hostileAct{
		{"its table has rules of any kind", anyRules("TABLE")},
		{"its table has routes of any kind", anyRoutes("TABLE")},
		{"its table is empty", "route flush table TABLE\n-6 route flush table TABLE\n"},
	}
}

// hostileRows are of a network whose DEL no container can block.
func hostileRows(more []hostileAct, network func(l *lab) network) []row {
	const differs = "it fails if what has the interface's name can't be deleted, or lo has another one"
	return []row{{name: "DEL succeeds whatever the container did inside, and leaves nothing on the host", differs: differs, test: func(l *lab) {
		n := network(l)
		before := l.warmed(n)
		for i, a := range append(hostileActs(), more...) {
			for k, result := range []bool{true, false} {
				if netlab.LeftOut(l, 2*i+k, 4) {
					continue
				}
				c := l.pod(fmt.Sprint("c", i, result))
				l.eventually(func() string { // what the one before had is gone a moment after its namespace
					err := c.add(n)
					if err == nil {
						return ""
					}
					l.must(c.del())
					return full(err)
				})
				c.does(a)
				if !result {
					l.forget()
				}
				for range 2 {
					if err := c.del(); err != nil {
						l.Errorf("%s, with a result %v: %s", a.name, result, full(err))
					}
				}
				c.Delete(l)
				l.stopIfFailed()
			}
		}
		before.unchanged()
	}}}
}

// cantDo is how ip says that the kernel does not have what an act needs, or what an earlier line of it would have made.
var cantDo = regexp.MustCompile(`Unknown device type|Device does not exist|No such file|Command failed`)

// does has the container do it.
func (c *container) does(a hostileAct) {
	if a.commands == "" {
		return
	}
	is := c.lab.named(&c.Namespace, "eth0")
	mac, index := "", ""
	if is != nil {
		mac, index = is.Attrs().HardwareAddr.String(), fmt.Sprint(is.Attrs().Index)
	} else if strings.Contains(a.commands, "eth0") {
		return
	}
	if strings.Contains(a.commands, "TABLE") {
		a.commands = strings.ReplaceAll(a.commands, "TABLE", cmp.Or(c.tableOf(c.v4), c.vrfTable()))
	}
	// Each kernel has other kinds, and an ipvlan is in no bridge and has no links on it.
	mayBeRefused := strings.HasSuffix(a.name, "of any kind") || is != nil && is.Type() == "ipvlan"
	commands := strings.NewReplacer("MAC", mac, "INDEX", index).Replace(a.commands)
	for _, family := range []string{"", "-6 ", "-M "} {
		var own strings.Builder
		for line := range strings.Lines(commands) {
			command, of := strings.CutPrefix(line, family)
			if of && (family != "" || line[0] != '-') {
				own.WriteString(command)
			}
		}
		if strings.TrimSpace(own.String()) == "" {
			continue
		}
		cmd := c.Command("ip", append(strings.Fields(family), "-force", "-batch", "-")...)
		cmd.Stdin = strings.NewReader(own.String())
		_, err := c.Output(cmd)
		if err == nil {
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if !mayBeRefused && !cantDo.MatchString(line) {
				c.lab.Errorf("%s: %s", a.name, line)
			}
		}
	}
}
