package watch

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// packet is a message of rtnetlink: its kind, who asked for it, and its body.
func packet(kind uint16, from uint32, body ...[]byte) []byte {
	data := slices.Concat(body...)
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, make([]byte, 6)...)
	return append(binary.NativeEndian.AppendUint32(b, from), data...)
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func attr(number uint16, value []byte) []byte {
	b, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: number, Data: value}})
	return b
}

func route(protocol, kind byte) []byte {
	return slices.Concat([]byte{unix.AF_INET, 24, 0, 0, unix.RT_TABLE_MAIN, protocol, 0, kind}, word(0), attr(unix.RTA_OIF, word(2)))
}

func TestFilterAndParser(t *testing.T) {
	vm, err := bpf.NewVM(linkFilter(77))
	if err != nil {
		t.Fatal(err)
	}
	const all = ^uint32(0)
	index := []byte{0, 0, 1, 0, 2, 0, 0, 0}
	for _, test := range []struct {
		name   string
		packet []byte
		passes bool
		reads  change
	}{
		{"a new link", packet(unix.RTM_NEWLINK, 0, index, word(0), word(all)), false, nothing},
		{"set down", packet(unix.RTM_NEWLINK, 0, index, word(0), word(unix.IFF_UP|unix.IFF_RUNNING)), true, down},
		{"set up", packet(unix.RTM_NEWLINK, 0, index, word(unix.IFF_UP), word(unix.IFF_UP)), false, nothing},
		{"another flag", packet(unix.RTM_NEWLINK, 0, index, word(0), word(unix.IFF_PROMISC)), false, nothing},
		{"a route", packet(unix.RTM_DELROUTE, 0, route(unix.RTPROT_BOOT, unix.RTN_UNICAST)), true, lost},
		{"a route of sbr", packet(unix.RTM_DELROUTE, 0, route(77, unix.RTN_UNICAST)), true, lost},
		{"a route of a routing daemon", packet(unix.RTM_DELROUTE, 7, route(unix.RTPROT_BIRD, unix.RTN_UNICAST)), false, lost},
		{"the kernel's route, by the kernel", packet(unix.RTM_DELROUTE, 0, route(unix.RTPROT_KERNEL, unix.RTN_UNICAST)), false, lost},
		{"the kernel's route, by somebody", packet(unix.RTM_DELROUTE, 7, route(unix.RTPROT_KERNEL, unix.RTN_UNICAST)), true, lost},
		{"a local route", packet(unix.RTM_DELROUTE, 7, route(unix.RTPROT_KERNEL, unix.RTN_LOCAL)), false, lost},
		{"a route without a link", packet(unix.RTM_DELROUTE, 7, route(unix.RTPROT_BOOT, unix.RTN_UNICAST)[:unix.SizeofRtMsg]), true, nothing},
		{"an address", packet(unix.RTM_DELADDR, 0, []byte{unix.AF_INET6, 64, 0, unix.RT_SCOPE_UNIVERSE}, word(2)), true, lost},
		{"a link-local address of IPv6", packet(unix.RTM_DELADDR, 0, []byte{unix.AF_INET6, 64, 0, unix.RT_SCOPE_LINK}, word(2)), false, lost},
		{"one of IPv4", packet(unix.RTM_DELADDR, 0, []byte{unix.AF_INET, 16, 0, unix.RT_SCOPE_LINK}, word(2)), true, lost},
		{"a qdisc", packet(unix.RTM_DELQDISC, 7, word(0), word(2), word(0x10000), word(0), word(0)), true, lost},
		{"the kernel's qdisc", packet(unix.RTM_DELQDISC, 7, word(0), word(2), word(0), word(0), word(0)), false, nothing},
		{"forwarding is off", packet(unix.RTM_NEWNETCONF, 0, word(unix.AF_INET), attr(netconfaIfindex, word(all)), attr(netconfaForwarding, word(0))), true, forwarding},
		{"it is on", packet(unix.RTM_NEWNETCONF, 0, word(unix.AF_INET), attr(netconfaIfindex, word(all)), attr(netconfaForwarding, word(1))), true, nothing},
		{"it is not told", packet(unix.RTM_NEWNETCONF, 0, word(unix.AF_INET), attr(netconfaIfindex, word(all))), true, nothing},
		{"it is off for a link", packet(unix.RTM_NEWNETCONF, 0, word(unix.AF_INET), attr(netconfaIfindex, word(2)), attr(netconfaForwarding, word(0))), false, nothing},
		{"an address is added", packet(unix.RTM_NEWADDR, 0, word(0), word(2)), false, nothing},
		{"a rule", packet(unix.RTM_DELRULE, 0, word(0), word(0), word(0)), true, nothing},
		{"a number of a namespace", packet(unix.RTM_DELNSID, 0, word(0), attr(unix.NETNSA_NSID, word(3))), true, ended},
		{"none", packet(unix.RTM_DELNSID, 0, word(0)), true, nothing},
	} {
		passed, err := vm.Run(test.packet)
		if err != nil || passed > 0 != test.passes {
			t.Errorf("%s: the filter lets it pass: %v (%v)", test.name, passed > 0, err)
		}
		for m := range messages(test.packet) {
			if e := parseLink(m, hostNumber); e.change != test.reads {
				t.Errorf("%s is read as %+v", test.name, e)
			}
		}
		for cut := range len(test.packet) { // no part of one makes it fail
			_, _ = vm.Run(test.packet[:cut])
			for m := range messages(test.packet[:cut]) {
				parseLink(m, hostNumber)
			}
		}
	}
}

// TestVRFOfContainer: a VRF that is deleted in a container is noticed, since the routes of attachments go with it. No plugin makes a bridge there.
func TestVRFOfContainer(t *testing.T) {
	for kind, want := range map[string]string{"vrf": "vrf blue in namespace 5 was deleted", "bridge": ""} {
		link := slices.Concat(make([]byte, 4), word(7), make([]byte, 8), attr(unix.IFLA_IFNAME, []byte("blue\x00")))
		gone := packet(unix.RTM_DELLINK, 0, link, attr(unix.IFLA_LINKINFO, attr(unix.IFLA_INFO_KIND, []byte(kind+"\x00"))))
		b, got := newBurst(), ""
		for m := range messages(gone) {
			b.addEvent(parseLink(m, 5), "")
		}
		for _, h := range b.hits(nil) {
			got += h.What
		}
		if got != want {
			t.Errorf("a %s that is deleted in a container: %q, want %q", kind, got, want)
		}
	}
}

func TestRuleAbout(t *testing.T) {
	const container, ports = "CNI-0123456789abcdef01234567", "CNI-DN-0123456789abcdef01234"
	for _, test := range []struct{ chain, target, want string }{
		{"POSTROUTING", container, container},
		{container, "", container},
		{ports, "CNI-HOSTPORT-SETMARK", ports},
		{"CNI-HOSTPORT-DNAT", ports, ports},
		{"PREROUTING", "CNI-HOSTPORT-DNAT", "PREROUTING CNI-HOSTPORT-DNAT"},
		{"POSTROUTING", "CNI-HOSTPORT-MASQ", "POSTROUTING CNI-HOSTPORT-MASQ"},
		{"FORWARD", "CNIBOX-FORWARD", "FORWARD CNIBOX-FORWARD"},
		{"PREROUTING", "", "PREROUTING "}, // the guard, by its comment
		{"CNI-HOSTPORT-SETMARK", "", "CNI-HOSTPORT-SETMARK "},
		{"CNIBOX-FORWARD", "CNI-ADMIN", "CNIBOX-FORWARD CNI-ADMIN"},
		{"CNI-FORWARD", "", ""},
		{"CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2", ""},
		{"CNI-ISOLATION-STAGE-2", "", ""},
	} {
		verdict := attr(unix.NFTA_DATA_VERDICT, attr(unix.NFTA_VERDICT_CHAIN, append([]byte(test.target), 0)))
		jump := attr(unix.NFTA_LIST_ELEM, append(attr(unix.NFTA_EXPR_NAME, []byte("immediate\x00")),
			attr(unix.NFTA_EXPR_DATA, attr(unix.NFTA_IMMEDIATE_DATA, verdict))...))
		counter := attr(unix.NFTA_LIST_ELEM, attr(unix.NFTA_EXPR_NAME, []byte("counter\x00")))
		rule := append(make([]byte, sizeofNfgenmsg), attr(unix.NFTA_RULE_CHAIN, append([]byte(test.chain), 0))...)
		rule = append(rule, attr(unix.NFTA_RULE_EXPRESSIONS, append(counter, jump...))...)
		if got := ruleAbout(rule); got != test.want {
			t.Errorf("%s -> %s is about %q, not %q", test.chain, test.target, got, test.want)
		}
	}
}
