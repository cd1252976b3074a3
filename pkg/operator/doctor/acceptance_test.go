package doctor

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// networkOf returns a network with a bridge, with a pool.
func networkOf(bridge, subnet string) *network {
	return &network{
		Network: &node.Network{Name: "demo", Pools: []*node.Pool{{Subnet: subnet}}},
		parts:   []*netconf.Part{{Named: "bridge", Kind: "bridge", Facts: plugin.Facts{Bridge: bridge, IsGateway: true}}},
	}
}

// TestAcceptanceIn reads rules of iptables, as it lists them.
func TestAcceptanceIn(t *testing.T) {
	n := networkOf("demo0", "10.88.0.0/24")
	for rule, want := range map[string]struct{ names, forAll bool }{
		"-A FORWARD -j ACCEPT": {false, true},
		`-A FORWARD -m comment --comment "all of -i demo0" -j ACCEPT`:                      {false, true},
		`-A FORWARD -m comment --comment short -i demo0 -j ACCEPT`:                         {true, false},
		"-A FORWARD -i demo0 -j ACCEPT":                                                    {true, false},
		"-A FORWARD -i demo+ -j ACCEPT":                                                    {true, false},
		"-A FORWARD ! -i demo0 -j ACCEPT":                                                  {false, false},
		"-A FORWARD -i demo01 -j ACCEPT":                                                   {false, false},
		"-A FORWARD -s 10.88.0.0/16 -j ACCEPT":                                             {true, false},
		"-A FORWARD -d 10.88.0.7/32 -o eth0 -j ACCEPT":                                     {true, false},
		"-A FORWARD -s 10.89.0.0/24 -j ACCEPT":                                             {false, false},
		"-A FORWARD ! -s 10.89.0.0/24 -j ACCEPT":                                           {false, false},
		"-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT":                  {false, false},
		"-A FORWARD -o demo0 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT":    {true, false},
		"-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT":                           {false, false},
		"-A ufw-before-forward -p icmp -m icmp --icmp-type 8 -j ACCEPT":                    {false, false},
		"-A CNIBOX-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT":                         {false, false},
		`-A FLANNEL-FWD -d 10.88.0.0/13 -m comment --comment "flanneld forward" -j ACCEPT`: {true, false},
	} {
		if a := acceptanceIn(rule); a.isFor(n) != want.names || a.isForAll() != want.forAll {
			t.Errorf("%s: %+v, want %+v", rule, a, want)
		}
	}
}

// TestAcceptanceOf: a rule of nftables for all but one link, or but one subnet, is no rule that lets everything pass, and none for that one.
func TestAcceptanceOf(t *testing.T) {
	link := append([]byte("demo0"), make([]byte, 11)...)
	for op, want := range map[expr.CmpOp]string{expr.CmpOpEq: "[demo0] false", expr.CmpOpNeq: "[] true", expr.CmpOpGte: "[] true"} {
		rule := &nftables.Rule{Chain: &nftables.Chain{Name: "forward"}, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: link}, &expr.Verdict{Kind: expr.VerdictAccept},
		}}
		a, err := acceptanceOf(nil, rule)
		if got := fmt.Sprint(a.links, a.other); err != nil || got != want || a.isForAll() {
			t.Errorf("%v: %s %v, want %s", op, got, err, want)
		}
	}
}

// TestTake reads what rules of nftables compare.
func TestTake(t *testing.T) {
	padded := func(name string) []byte { return append([]byte(name), make([]byte, 16-len(name))...) }
	for _, tt := range []struct {
		kind       kind
		data, mask []byte
		want       string
	}{
		{kindLink, padded("demo0"), nil, "[demo0] [] false"},
		{kindLink, []byte("demo0\x00"), nil, "[demo0] [] false"},
		{kindLink, []byte("veth"), nil, "[veth*] [] false"},
		{kindIPv4, []byte{10, 88, 0}, nil, "[] [10.88.0.0-10.88.0.255] false"},
		{kindIPv4, []byte{10, 88}, nil, "[] [10.88.0.0-10.88.255.255] false"},
		{kindIPv6, []byte{0xfd, 0}, nil, "[] [fd00::-fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffff] false"},
		{kindIPv4, []byte{10, 88, 0, 7}, nil, "[] [10.88.0.7-10.88.0.7] false"},
		{kindIPv4, []byte{10, 80, 0, 0}, []byte{255, 240, 0, 0}, "[] [10.80.0.0-10.95.255.255] false"},
		{kindIPv6, []byte{0xfd, 0, 0, 0x88, 0, 0, 0, 0}, nil, "[] [fd00:88::-fd00:88::ffff:ffff:ffff:ffff] false"},
		{kindFamily, []byte{2}, nil, "[] [] false"},
		{kindOther, []byte{6}, nil, "[] [] true"},
	} {
		var a acceptance
		a.require(tt.kind, tt.data, tt.mask)
		if got := fmt.Sprint(a.links, a.spans, a.other); got != tt.want {
			t.Errorf("%v %v: %s, want %s", tt.kind, tt.data, got, tt.want)
		}
	}
	var a acceptance
	a.takeSet(kindIPv4, []nftables.SetElement{{Key: []byte{0, 0, 0, 0}, IntervalEnd: true}, {Key: []byte{10, 96, 0, 0}, IntervalEnd: true}, {Key: []byte{10, 80, 0, 0}}})
	a.takeSet(kindLink, []nftables.SetElement{{Key: padded("demo0")}, {Key: padded("cni0")}})
	if got := fmt.Sprint(a.links, a.spans); got != "[cni0 demo0] [10.80.0.0-10.95.255.255]" {
		t.Errorf("of sets: %s", got)
	}
}

func TestKindAt(t *testing.T) {
	for at, want := range map[[2]uint32]kind{{12, 4}: kindIPv4, {16, 1}: kindIPv4, {8, 16}: kindIPv6, {24, 2}: kindIPv6, {8, 1}: kindOther, {9, 1}: kindOther, {0, 4}: kindOther} {
		if got := kindAt(at[0], at[1]); got != want {
			t.Errorf("at %v is %v, want %v", at, got, want)
		}
	}
}

func TestPasses(t *testing.T) {
	c := forwardChain{name: "FORWARD", jumps: [][2]string{{"FORWARD", "a"}, {"a", "b"}, {"b", "a"}, {"c", "d"}}}
	if got := fmt.Sprint(c.passes()); got != "[FORWARD a b]" {
		t.Errorf("passes %s", got)
	}
}

func TestSpan(t *testing.T) {
	for _, tt := range []struct {
		prefix, other string
		want          bool
	}{
		{"10.0.0.0/8", "10.88.0.0/24", true}, {"10.88.0.0/24", "10.0.0.0/8", true}, {"10.88.0.255/32", "10.88.0.0/24", true},
		{"10.88.1.0/24", "10.88.0.0/24", false}, {"0.0.0.0/0", "fd00::/64", false}, {"fd00::/48", "fd00:0:0:1::/64", true},
	} {
		if got := spanOf(netip.MustParsePrefix(tt.prefix)).overlaps(netip.MustParsePrefix(tt.other)); got != tt.want {
			t.Errorf("%s and %s: %v", tt.prefix, tt.other, got)
		}
	}
}
