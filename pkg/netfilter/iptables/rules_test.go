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

// texts are the rules that are added, by family.
func texts(rules []rule) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString(r.family.name + " " + r.add() + "\n")
	}
	return b.String()
}

func TestMasqueradeRules(t *testing.T) {
	t.Parallel()
	key := plugin.Key{Network: "net1", ContainerID: "cid1", IfName: "eth0"}
	got := texts(missing(MasqueradeRules(key, prefixes("10.88.0.2/16", "10.88.0.3/16", "fd00::2/64")).own, nil))
	const c = ` -m comment --comment "name: \"net1\" id: \"cid1\""`
	const chain = "CNI-e8f6f419596f7f47b3468487"
	want := "ipv4 -I " + chain + " -d 10.88.0.0/16" + c + " -j ACCEPT\n" +
		"ipv4 -A " + chain + " ! -d 224.0.0.0/4" + c + " -j MASQUERADE\n" +
		"ipv4 -A POSTROUTING -s 10.88.0.2/32" + c + " -j " + chain + "\n" +
		"ipv4 -A POSTROUTING -s 10.88.0.3/32" + c + " -j " + chain + "\n" +
		"ipv6 -I " + chain + " -d fd00::/64" + c + " -j ACCEPT\n" +
		"ipv6 -A " + chain + " ! -d ff00::/8" + c + " -j MASQUERADE\n" +
		"ipv6 -A POSTROUTING -s fd00::2/128" + c + " -j " + chain + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPortRules(t *testing.T) {
	t.Parallel()
	const chain = "CNI-DN-e8f6f419596f7f47b3468"
	const entry = ` -m comment --comment "dnat name: \"net1\" id: \"cid1\"" -m multiport --dports `
	for _, tt := range []struct {
		name string
		maps []string
		set  func(*spec.PortNeeds)
		want string
	}{
		{"plain", []string{"tcp/8080=10.88.0.2:80"}, func(p *spec.PortNeeds) { p.SNAT = false },
			"-A " + chain + " -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.88.0.2:80\n" +
				"-A CNI-HOSTPORT-DNAT -p tcp" + entry + "8080 -j " + chain + "\n"},
		{"snat", []string{"tcp/8080=10.88.0.2:80", "sctp/192.0.2.1:81=10.88.0.2:82"}, nil,
			"-A " + chain + " -s 10.88.0.0/16 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK\n" +
				"-A " + chain + " -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK\n" +
				"-A " + chain + " -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.88.0.2:80\n" +
				"-A " + chain + " -s 10.88.0.0/16 -d 192.0.2.1/32 -p sctp -m sctp --dport 81 -j CNI-HOSTPORT-SETMARK\n" +
				"-A " + chain + " -s 127.0.0.1/32 -d 192.0.2.1/32 -p sctp -m sctp --dport 81 -j CNI-HOSTPORT-SETMARK\n" +
				"-A " + chain + " -d 192.0.2.1/32 -p sctp -m sctp --dport 81 -j DNAT --to-destination 10.88.0.2:82\n" +
				"-A CNI-HOSTPORT-DNAT -p sctp" + entry + "81 -j " + chain + "\n" +
				"-A CNI-HOSTPORT-DNAT -p tcp" + entry + "8080 -j " + chain + "\n"},
		{"ipv6 has no localhost", []string{"tcp/8080=[fd00::2]:80"}, nil,
			"-A " + chain + " -s fd00::/64 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK\n" +
				"-A " + chain + " -p tcp -m tcp --dport 8080 -j DNAT --to-destination [fd00::2]:80\n" +
				"-A CNI-HOSTPORT-DNAT -p tcp" + entry + "8080 -j " + chain + "\n"},
		{"masqAll, chain, conditions", []string{"tcp/8080=10.88.0.2:80"}, func(p *spec.PortNeeds) {
			p.MasqAll, p.SetMarkChain, p.Conditions4 = true, "KUBE-MARK-MASQ", []string{"!", "-d", "192.0.2.0/24", "-m", "comment", "--comment", `a "b" \`}
		},
			"-A " + chain + " -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ\n" +
				"-A " + chain + " -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.88.0.2:80\n" +
				"-A CNI-HOSTPORT-DNAT -p tcp" + entry + `8080 ! -d 192.0.2.0/24 -m comment --comment "a \"b\" \\" -j ` + chain + "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ports := publish(t, tt.maps...)
			if tt.set != nil {
				tt.set(&ports)
			}
			var got strings.Builder
			for _, r := range PortMapRules(plugin.Key{Network: "net1", ContainerID: "cid1", IfName: "eth0"}, ports).own {
				got.WriteString(r.add() + "\n")
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
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

func TestForwardRules(t *testing.T) {
	t.Parallel()
	w := ForwardRules(plugin.Key{}, spec.ForwardNeeds{Addrs: addrs("10.88.0.2", "fd00::2"), Ingress: spec.Isolated, Bridge: "br0"})
	must(t, w.err)
	const both = ` -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)"`
	const own = ` -m comment --comment "CNI firewall plugin rules (ingressPolicy: isolated)"`
	want := `ipv4 -I FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
ipv4 -I CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
ipv4 -I FORWARD` + both + ` -j CNI-ISOLATION-STAGE-1
ipv4 -A CNI-ISOLATION-STAGE-1` + both + ` -j RETURN
ipv4 -A CNI-ISOLATION-STAGE-2` + both + ` -j RETURN
ipv4 -A CNI-FORWARD -d 10.88.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
ipv4 -A CNI-FORWARD -s 10.88.0.2/32 -j ACCEPT
ipv4 -I CNI-ISOLATION-STAGE-1 -i br0 ! -o br0` + own + ` -j CNI-ISOLATION-STAGE-2
ipv4 -I CNI-ISOLATION-STAGE-2 -o br0` + both + ` -j DROP
ipv4 -I CNI-ISOLATION-STAGE-1 -i br0 -o br0` + own + ` -j DROP
`
	if diff := cmp.Diff(want, texts(w.ofFamily(&ipv4))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(strings.ReplaceAll(strings.ReplaceAll(want, "ipv4", "ipv6"), "10.88.0.2/32", "fd00::2/128"), texts(w.ofFamily(&ipv6))); diff != "" {
		t.Error(diff)
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
