package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestChainNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind                     Kind
		network, container, want string
	}{
		{Masquerading, "net1", "cid1", "CNI-e8f6f419596f7f47b3468487"},
		{Masquerading, "test", "1234", "CNI-2bbe0c48b91a7d1b8a6753a8"},
		{PortMapping, "net1", "cid1", "CNI-DN-e8f6f419596f7f47b3468"},
	} {
		got := owner{tt.kind, plugin.Key{Network: tt.network, ContainerID: tt.container}}.chains()[0]
		if got != tt.want || !tt.kind.isChain(got) {
			t.Errorf("%s %s: %s, want %s", tt.network, tt.container, got, tt.want)
		}
	}
	for _, name := range []string{"CNI-FORWARD", "CNI-HOSTPORT-DNAT", "CNI-ISOLATION-STAGE-1", "CNI-DN-e8f6f419596f7f47b3468", "PREROUTING", ""} {
		if Masquerading.isChain(name) {
			t.Errorf("%q is taken for a container's chain", name)
		}
	}
}

// TestPortRules is about what the reference plugin has no equal of, or needs a chain for that others make; the rest is in TestReference.
func TestPortRules(t *testing.T) {
	t.Parallel()
	ports := publish(t, "tcp/8080=10.88.0.2:80")
	ports.MasqAll, ports.SetMarkChain = true, "KUBE-MARK-MASQ"
	ports.Conditions4 = []string{"!", "-d", "192.0.2.0/24", "-m", "comment", "--comment", `a "b" \`}
	got := ""
	for _, r := range PortMapRules(plugin.Key{Network: "net1", ContainerID: "cid1", IfName: "eth0"}, ports).own {
		got += r.add() + "\n"
	}
	const chain = "CNI-DN-e8f6f419596f7f47b3468"
	same(t, "rules", got, "-A "+chain+" -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ\n"+
		"-A "+chain+" -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.88.0.2:80\n"+
		`-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"net1\" id: \"cid1\"" -m multiport --dports 8080`+
		` ! -d 192.0.2.0/24 -m comment --comment "a \"b\" \\" -j `+chain+"\n")
}

func TestEntriesHoldFifteenPorts(t *testing.T) {
	t.Parallel()
	ports := spec.PortNeeds{}
	for i := range 31 {
		ports.Maps = append(ports.Maps, spec.PortMap{Protocol: 6, HostPort: uint16(1000 + i), Container: netip.MustParseAddrPort("10.88.0.2:80")})
	}
	rules := entryRules(&ipv4, owner{PortMapping, keyOf("a")}, ports)
	var counts []int
	for _, r := range rules {
		counts = append(counts, len(strings.Split(r.option("--dports"), ",")))
	}
	if diff := cmp.Diff([]int{15, 15, 1}, counts); diff != "" {
		t.Error(diff)
	}
}

// Entries name the ports of both families, in the order of the configuration.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		maps []string
		want string
	}{
		{[]string{"tcp/1=10.0.0.2:1", "tcp/2=10.0.0.2:2", "tcp/1=[fd00::2]:1", "tcp/2=[fd00::2]:2"}, "1,2"},
		{[]string{"tcp/1=10.0.0.2:1", "tcp/1=[fd00::2]:1", "tcp/[2001:db8::1]:9=[fd00::2]:2"}, "1,9"},
		{[]string{"tcp/192.0.2.1:1=10.0.0.2:1", "tcp/192.0.2.2:1=10.0.0.2:2"}, "1,1"},
		{[]string{"udp/1=10.0.0.2:1"}, ""},
	} {
		if got := strings.Join(hostPorts("tcp", publish(t, tt.maps...).Maps), ","); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.maps, got, tt.want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
	}{
		{"newline in a condition", validatePorts(spec.PortNeeds{Conditions4: []string{"-s", "1\n-F"}})},
		{"empty condition", validatePorts(spec.PortNeeds{Conditions6: []string{""}})},
		{"mark chain", validatePorts(spec.PortNeeds{SetMarkChain: "-j ACCEPT"})},
		{"admin chain", ForwardRules(plugin.Key{}, spec.ForwardNeeds{AdminChain: "A\nB"}).err},
		{"long admin chain", ForwardRules(plugin.Key{}, spec.ForwardNeeds{AdminChain: strings.Repeat("A", 29)}).err},
		{"no bridge", ForwardRules(plugin.Key{}, spec.ForwardNeeds{Ingress: spec.SameBridge}).err},
		{"path for a bridge", ForwardRules(plugin.Key{}, spec.ForwardNeeds{Ingress: spec.SameBridge, Bridge: "../br0"}).err},
		{"pattern for a bridge", ForwardRules(plugin.Key{}, spec.ForwardNeeds{Ingress: spec.SameBridge, Bridge: "br+"}).err},
	} {
		if tt.err == nil || plugin.AsError(tt.err).Code != types.ErrInvalidNetworkConfig || plugin.AsError(tt.err).Details == "" {
			t.Errorf("%s: %v", tt.name, tt.err)
		}
	}
}

// A comment is cut as the reference plugin cuts it.
func TestComment(t *testing.T) {
	t.Parallel()
	comment := func(id string) string { return words(owner{Masquerading, keyOf(id)}.comment())[3] }
	const around = len(`name: "net" id: ""`)
	if got := comment(strings.Repeat("x", 255-around)); len(got) != 255 || !strings.HasSuffix(got, `x"`) {
		t.Errorf("255 characters became %q", got)
	}
	if got := comment(strings.Repeat("x", 300)); len(got) != 256 || !strings.HasSuffix(got, "x...") {
		t.Errorf("300 characters became %q", got)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	idOf := func(chain, spec string) string { return rule{family: &ipv4, chain: chain, spec: spec}.id() }
	const to = " -j CNI-DN-e8f6f419596f7f47b3468"
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"-s 10.0.0.1/32 -j ACCEPT", "-s 10.0.0.1/32 -j ACCEPT", true},
		{"-s 10.0.0.1/32 -j ACCEPT", "-s 10.0.0.2/32 -j ACCEPT", false},
		{"-p tcp -m multiport --dports 1,2 -s 10.0.0.0/8" + to, "-s 10.0.0.0/8 -p tcp -m multiport --dports 1,2" + to, true},
		{"-p tcp -m multiport --dports 1,2" + to, "-p tcp -m multiport --dports 1,3" + to, false},
		{"-p tcp -m multiport --dports 1,2" + to, "-p udp -m multiport --dports 1,2" + to, false},
	} {
		if got := idOf("C", tt.a) == idOf("C", tt.b); got != tt.same {
			t.Errorf("%s\n%s\nare the same: %v", tt.a, tt.b, got)
		}
	}
}
