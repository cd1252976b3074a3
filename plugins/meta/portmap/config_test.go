package portmap

import (
	"net/netip"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/result"
)

const webPort = `{"hostPort":8080,"containerPort":80,"protocol":"tcp"}`

// config returns a configuration with more keys and the runtime's mappings.
func configText(keys, mappings string) string {
	return `{"cniVersion":"1.1.0","name":"net","type":"portmap"` + keys + `,"runtimeConfig":{"portMappings":[` + mappings + `]}}`
}

func parseText(t testing.TB, text string) (*config, error) {
	t.Helper()
	o, err := conf.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parse(o)
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, keys, mappings, want string }{
		{"hostPort 0", ``, `{"hostPort":0,"containerPort":80,"protocol":"tcp"}`, `key "runtimeConfig.portMappings[0].hostPort": want a port from 1 to 65535, got 0`},
		{"no hostPort", ``, `{"containerPort":80,"protocol":"tcp"}`, `portMappings[0].hostPort": want a port`},
		{"hostPort above", ``, webPort + `,{"hostPort":65536,"containerPort":80,"protocol":"tcp"}`, `portMappings[1].hostPort": want a port from 1 to 65535, got 65536`},
		{"containerPort negative", ``, `{"hostPort":1,"containerPort":-1,"protocol":"tcp"}`, `containerPort": want a port`},
		{"port is a string", ``, `{"hostPort":"80","containerPort":80,"protocol":"tcp"}`, `hostPort": want a whole number, got the string "80"`},
		{"protocol", ``, `{"hostPort":1,"containerPort":1,"protocol":"icmp"}`, `protocol": want tcp, udp or sctp, got "icmp"`},
		{"no protocol", ``, `{"hostPort":1,"containerPort":1}`, `protocol": want tcp, udp or sctp`},
		{"hostIP", ``, `{"hostPort":1,"containerPort":1,"protocol":"tcp","hostIP":"localhost"}`, `hostIP": want an address`},
		{"mappings no list", `,"runtimeConfig":{"portMappings":{}}`, ``, ``},
		{"backend", `,"backend":"ipvs"`, ``, `backend: unknown backend "ipvs"`},
		{"conditions of iptables with nftables", `,"backend":"nftables","conditionsV4":["-d","192.0.2.1"]`, ``, `backend is "nftables", but conditionsV4 (in the words of iptables) needs iptables`},
		{"conditions of nft with iptables", `,"backend":"iptables","conditionsV6":["ip6","saddr","fd00::/8"]`, ``, `backend is "iptables", but conditionsV6 (in the words of nft) needs nftables`},
		{"conditions of both", `,"conditionsV4":["!","-d","192.0.2.1"],"conditionsV6":["ip6","saddr","fd00::/8"]`, ``, `conditionsV4 (in the words of iptables) needs iptables, but conditionsV6`},
		{"a chain with nftables", `,"backend":"nftables","externalSetMarkChain":"X"`, ``, `externalSetMarkChain needs iptables`},
		{"snat", `,"snat":"yes"`, ``, `key "snat": want true or false`},
		{"markMasqBit below", `,"markMasqBit":-1`, ``, `markMasqBit": want a bit from 0 to 31`},
		{"markMasqBit above", `,"markMasqBit":32`, ``, `markMasqBit": want a bit from 0 to 31`},
		{"both marks", `,"markMasqBit":13,"externalSetMarkChain":"X"`, ``, `externalSetMarkChain": want to be alone`},
		{"conditions", `,"conditionsV4":"-d 1.2.3.4"`, ``, `conditionsV4": want a list of strings`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseText(t, configText(tt.keys, tt.mappings))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("an overridden key was looked at: %v", err) // the last of two equal keys wins
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestBackend(t *testing.T) {
	for keys, want := range map[string]netfilter.Wish{
		``:                                {},
		`,"backend":"nftables"`:           {Value: "nftables"},
		`,"backend":"iptables"`:           {Value: "iptables"},
		`,"conditionsV4":[]`:              {},
		`,"conditionsV6":["!","-d","::"]`: {IPTables: "conditionsV6 (in the words of iptables)"},
		`,"backend":"iptables","conditionsV4":["-d","192.0.2.1"]`: {Value: "iptables", IPTables: "conditionsV4 (in the words of iptables)"},
		`,"conditionsV4":["ip","saddr","10.0.0.0/8"]`:             {NFTables: "conditionsV4 (in the words of nft)"},
		`,"markMasqBit":13`:                        {},
		`,"markMasqBit":14`:                        {IPTables: "markMasqBit (other than 13)"},
		`,"externalSetMarkChain":"KUBE-MARK-MASQ"`: {IPTables: "externalSetMarkChain"},
		`,"backend":"iptables","externalSetMarkChain":"KUBE-MARK-MASQ"`: {Value: "iptables", IPTables: "externalSetMarkChain"},
	} {
		want.Key = "backend"
		c, err := parseText(t, configText(keys, webPort))
		if err != nil || c.backend != want {
			t.Errorf("%s: %+v, %v; want %+v", keys, c, err, want)
		}
	}
}

func TestMarks(t *testing.T) {
	c, err := parseText(t, configText(`,"markMasqBit":0`, webPort))
	if err != nil || c.markBit != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parseText(t, configText(``, webPort))
	if err != nil || c.markBit != 13 {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parseText(t, configText(`,"externalSetMarkChain":"KUBE-MARK-MASQ"`, webPort))
	if err != nil || c.setMarkChain != "KUBE-MARK-MASQ" {
		t.Errorf("%+v, %v", c, err)
	}
}

func addresses(texts ...string) []*types100.IPConfig {
	var out []*types100.IPConfig
	for _, s := range texts {
		out = append(out, &types100.IPConfig{Address: result.IPNet(netip.MustParsePrefix(s))})
	}
	return out
}

func TestPortMaps(t *testing.T) {
	both := addresses("10.88.0.2/24", "10.88.0.3/24", "fd00::2/64")
	to := func(hostIP string, protocol uint8, hostPort uint16, container string) spec.PortMap {
		m := spec.PortMap{Protocol: protocol, HostPort: hostPort, Container: netip.MustParseAddrPort(container)}
		if hostIP != "" {
			m.HostIP = netip.MustParseAddr(hostIP)
		}
		return m
	}
	mapping := func(hostIP string) string {
		return `{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":"` + hostIP + `"}`
	}
	for _, tt := range []struct {
		name, mappings string
		ips            []*types100.IPConfig
		want           []spec.PortMap
		wantErr        string
	}{
		{"both families", webPort, both, []spec.PortMap{to("", 6, 8080, "10.88.0.2:80"), to("", 6, 8080, "[fd00::2]:80")}, ""},
		{"hostIP empty", mapping(""), both, []spec.PortMap{to("", 6, 8080, "10.88.0.2:80"), to("", 6, 8080, "[fd00::2]:80")}, ""},
		{"hostIP of one family", mapping("192.0.2.1"), both, []spec.PortMap{to("192.0.2.1", 6, 8080, "10.88.0.2:80")}, ""},
		{"any IPv4", mapping("0.0.0.0"), both, []spec.PortMap{to("", 6, 8080, "10.88.0.2:80")}, ""},
		{"any IPv6", mapping("::"), both, []spec.PortMap{to("", 6, 8080, "[fd00::2]:80")}, ""},
		{"IPv4 written as IPv6", mapping("::ffff:192.0.2.1"), both, []spec.PortMap{to("192.0.2.1", 6, 8080, "10.88.0.2:80")}, ""},
		{"any IPv6, container has none", mapping("::"), addresses("10.88.0.2/24"), nil, ""},
		{"an IPv6, container has none", mapping("2001:db8::1"), addresses("10.88.0.2/24"), nil, ""},
		{"no address", webPort, nil, nil, ""},
		{"protocols in any case", `{"hostPort":1,"containerPort":2,"protocol":"UDP"},{"hostPort":1,"containerPort":2,"protocol":"Sctp"}`,
			addresses("10.88.0.2/24"), []spec.PortMap{to("", 17, 1, "10.88.0.2:2"), to("", 132, 1, "10.88.0.2:2")}, ""},
		{"the same twice", webPort + "," + mapping("0.0.0.0"), addresses("10.88.0.2/24"), []spec.PortMap{to("", 6, 8080, "10.88.0.2:80")}, ""},
		{"two targets", webPort + `,{"hostPort":8080,"containerPort":81,"protocol":"tcp"}`, addresses("10.88.0.2/24"), nil,
			"host port tcp/8080 is mapped to both 10.88.0.2:80 and 10.88.0.2:81"},
		{"one address and all", webPort + `,{"hostPort":8080,"containerPort":81,"protocol":"tcp","hostIP":"192.0.2.1"}`, addresses("10.88.0.2/24"),
			[]spec.PortMap{to("", 6, 8080, "10.88.0.2:80"), to("192.0.2.1", 6, 8080, "10.88.0.2:81")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseText(t, configText("", tt.mappings))
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.portMaps(tt.ips)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("%v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			comparable := cmp.Comparer(func(a, b spec.PortMap) bool { return a == b })
			if diff := cmp.Diff(tt.want, got, comparable); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
