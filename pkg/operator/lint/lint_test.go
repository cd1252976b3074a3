package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/plugins/known"
)

var options = lint.Options{Plugins: known.Plugins}

// list writes a network with these plugins, each in a line of its own, from line 3 on.
func list(plugins ...string) string {
	return "{\"cniVersion\": \"1.0.0\", \"name\": \"net\",\n\"plugins\": [\n" + strings.Join(plugins, ",\n") + "\n]}\n"
}

const (
	ipam    = `"ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}`
	bridge  = `{"type": "bridge"}`
	portmap = `{"type": "portmap", "capabilities": {"portMappings": true}}`
)

// hosts is a bridge with a subnet.
func hosts(subnet string) string {
	return strings.Replace(`{"type": "bridge", `+ipam+`}`, "10.1.0.0/24", subnet, 1)
}

// fixed is a bridge whose container has one address.
func fixed(address string) string {
	return `{"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "` + address + `"}]}}`
}

// TestEachCode has a mistake for each code that files alone can have, at its place, and beside it a text without it.
func TestEachCode(t *testing.T) {
	tests := []struct {
		code, at  string // line:column
		bad, good string
	}{
		{"burst-too-small", "4:62", list(bridge, `{"type": "bandwidth", "ingressRate": 800000, "ingressBurst": 12111}`), list(bridge, `{"type": "bandwidth", "ingressRate": 800000, "ingressBurst": 12112}`)},
		{"chained-first", "3:10", list(portmap), list(bridge, portmap)},
		{"device-missing", "3:10", list(`{"type": "host-device"}`), list(`{"type": "host-device", "capabilities": {"deviceID": true}}`)},
		{"gateway-outside", "3:87", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "10.2.0.1"}}`),
			list(`{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "169.254.1.1"}}`)},
		{"gateway-outside", "3:106", list(`{"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "0.0.0.0"}}`),
			list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "0.0.0.0"}}`)},
		{"gateway-outside", "3:113", list(`{"type": "bridge", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "0.0.0.0"}}`),
			list(`{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "fd00:1::/64", "gateway": "::"}}`)},
		{"host-bits", "3:61", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.1/24"}}`), list(`{"type": "bridge", ` + ipam + `}`)},
		{"host-aside", "4:10", list(`{"type": "macvlan", `+ipam+`}`, `{"type": "egress", "allow": []}`), list(`{"type": "bridge", `+ipam+`}`, `{"type": "egress", "allow": []}`)},
		{"host-aside", "4:10", list(`{"type": "ipvlan", `+ipam+`}`, `{"type": "dnsname"}`), list(`{"type": "ptp", `+ipam+`}`, `{"type": "dnsname"}`)},
		{"ipam-missing", "3:10", list(`{"type": "ptp"}`), list(`{"type": "ptp", ` + ipam + `}`)},
		{"keys-exclude", "3:41", list(`{"type": "bridge", "hairpinMode": true, "promiscMode": true}`), list(`{"type": "bridge", "hairpinMode": true, "promiscMode": false}`)},
		{"missing-key", "4:23", list(bridge, `{"type": "bandwidth", "ingressRate": 800000}`), list(bridge, `{"type": "bandwidth", "ingressRate": 800000, "ingressBurst": 12112}`)},
		{"missing-key", "4:23", list(bridge, `{"type": "bandwidth", "egressBurst": 12112}`), list(bridge, `{"type": "bandwidth", "egressBurst": 12112, "egressRate": 800000}`)},
		{"missing-key", "4:1", list(bridge, `{"type": "vrf"}`), list(bridge, `{"type": "vrf", "vrfname": "red"}`)},
		{"name-invalid", "1:33", strings.Replace(list(bridge), `"net"`, `"a b"`, 1), list(bridge)},
		{"name-missing", "1:1", strings.Replace(list(bridge), `"name": "net",`, "", 1), list(bridge)},
		{"no-room", "3:61", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.1"}}`),
			list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.2"}}`)},
		{"not-json", "3:18", list(`{"type": "bridge",}`), list(bridge)},
		{"not-json", "3:21", list(`{"type": "bridge" , // why`, `}`), list(`{"type": "bridge", "//": "why"}`)},
		{"out-of-range", "3:28", list(`{"type": "bridge", "vlan": 4095}`), list(`{"type": "bridge", "vlan": 4094}`)},
		{"plugins-missing", "2:12", strings.Replace(list(bridge), bridge, "", 1), list(bridge)},
		{"range-exchanged", "3:90", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.5"}}`),
			list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.5", "rangeEnd": "10.1.0.9"}}`)},
		{"range-outside", "3:88", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeEnd": "10.1.1.1"}}`),
			list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.255"}}`)},
		{"ranges-overlap", "3:101", list(`{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/25"}]]}}`),
			list(`{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/25"}, {"subnet": "10.1.0.128/25"}]]}}`)},
		{"refused", "4:48", list(bridge, `{"type": "tuning", "sysctl": {"kernel.msgmax": "1"}}`), list(bridge, `{"type": "tuning", "sysctl": {"net.core.somaxconn": "1"}}`)},
		{"second-main", "4:10", list(bridge, `{"type": "dummy", `+ipam+`}`), list(`{"type": "loopback"}`, bridge)},
		{"type-missing", "3:1", list(`{"bridge": "a"}`), list(bridge)},
		{"version-too-old", "1:16", strings.Replace(list(bridge, `{"type": "firewall"}`), "1.0.0", "0.3.1", 1), strings.Replace(list(bridge, `{"type": "firewall"}`), "1.0.0", "0.4.0", 1)},
		{"version-unknown", "1:16", strings.Replace(list(bridge), "1.0.0", "1.0", 1), strings.Replace(list(bridge), "1.0.0", "1.1.0", 1)},
		{"wrong-form", "3:89", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeEnd" : "10.1.0.256"}}`), list(`{"type": "bridge", ` + ipam + `}`)},
		{"wrong-kind", "4:10", list(bridge, `{"type": "host-local"}`), list(`{"type": "bridge", ` + ipam + `}`)},
		{"wrong-type", "3:27", list(`{"type": "bridge", "mtu": "1400"}`), list(`{"type": "bridge", "mtu": 1400}`)},
		{"wrong-word", "3:29", list(`{"type": "macvlan", "mode": "Bridge"}`), list(`{"type": "macvlan", "mode": ""}`)},

		{"capability-missing", "4:10", list(bridge, `{"type": "portmap"}`), list(bridge, portmap)},
		{"capability-missing", "4:10", list(bridge, `{"type": "bandwidth"}`), list(bridge, `{"type": "bandwidth", "capabilities": {"bandwidth": true}}`)},
		{"default-route-twice", "3:121", list(`{"type": "bridge", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}`),
			list(`{"type": "bridge", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "10.0.0.0/8"}]}}`)},
		{"duplicate-key", "3:20", list(`{"type": "bridge", "mtu": 1400, "mtu": 1500}`), list(`{"type": "bridge", "mtu": 1400}`)},
		{"ipam-ignored", "4:61", list(bridge, strings.TrimSuffix(portmap, "}")+`, `+ipam+`}`), list(bridge, strings.TrimSuffix(portmap, "}")+`, "ipam": {}}`)},
		{"misspelled-capability", "4:38", list(bridge, `{"type": "portmap", "capabilities": {"portmappings": true}}`), list(bridge, portmap)},
		{"misspelled-plugin", "3:10", list(`{"type": "brigde"}`), list(`{"type": "buildkit-cni-bridge"}`)},
		{"mtu-too-small", "3:27", list(`{"type": "bridge", "mtu": 1279, "ipam": {"type": "host-local", "subnet": "fd00::/64"}}`), list(`{"type": "bridge", "mtu": 1280, "ipam": {"type": "host-local", "subnet": "fd00::/64"}}`)},
		{"needs-ipam", "3:20", list(`{"type": "bridge", "isGateway": true}`), list(`{"type": "bridge", "isGateway": true, ` + ipam + `}`)},
		{"no-default-route", "3:17", list(`{"type": "ptp", "ipMasq": true, ` + ipam + `}`), list(`{"type": "bridge", "ipMasq": true, "isDefaultGateway": true, ` + ipam + `}`)},
		{"not-in-cnibox", "4:58", list(bridge, `{"type": "bandwidth", "capabilities": {"bandwidth":true},"shapedSubnets": ["10.0.0.0/8"]}`), list(bridge, `{"type": "bandwidth", "capabilities": {"bandwidth": true}}`)},
		{"entry-contained", "4:44", list(bridge, `{"type": "egress", "allow": ["10.0.0.0/8", "10.1.0.0/16"], "capabilities": {"egress": true}}`), list(bridge, `{"type": "egress", "allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"], "capabilities": {"egress": true}}`)},
		{"entry-contained", "4:44", list(bridge, `{"type": "egress", "deny": ["10.1.0.1:80", "10.1.0.1:80"], "capabilities": {"egress": true}}`), list(bridge, `{"type": "egress", "deny": ["10.1.0.1:80", "10.1.0.1:81"], "capabilities": {"egress": true}}`)},
		{"entry-contained", "4:47", list(bridge, `{"type": "egress", "allow": ["*.example.org", "api.example.org:443"]}`), list(bridge, `{"type": "egress", "allow": ["*.example.org", "example.org", "api.example.com"]}`)},
		{"entry-contained", "4:49", list(bridge, `{"type": "egress", "allow": ["a.b.example.org", "*.b.example.org"]}`), list(bridge, `{"type": "egress", "allow": ["a.example.org", "*.b.example.org"]}`)},
		{"entry-denied", "4:30", list(bridge, `{"type": "egress", "allow": ["10.1.0.0/24:443", "10.2.0.1"], "deny": ["10.1.0.0/16"]}`), list(bridge, `{"type": "egress", "allow": ["10.1.0.0/16"], "deny": ["10.1.0.0/24:443"]}`)},
		{"entry-denied", "4:46", list(bridge, `{"type": "egress", "allow": ["10.2.0.1:443", "api.example.org"], "deny": ["*.Example.org"]}`), list(bridge, `{"type": "egress", "allow": ["*.example.org"], "deny": ["api.example.org"]}`)},
		{"entry-for-dns", "4:30", list(bridge, `{"type": "egress", "allow": ["dns.example.org:53/udp"]}`), list(bridge, `{"type": "egress", "allow": ["dns.example.org:53-54"]}`)},
		{"entry-for-dns", "4:49", list(bridge, `{"type": "egress", "allow": ["api.example.org", "10.2.0.1:53"]}`), list(bridge, `{"type": "egress", "allow": ["10.2.0.1:53"]}`)},
		{"lists-twice", "5:10", list(bridge, `{"type": "egress", "deny": ["10.1.0.1"]}`, `{"type": "egress", "deny": ["10.2.0.1"]}`), list(bridge, `{"type": "egress", "deny": ["10.1.0.1", "10.2.0.1"]}`)},
		{"dns-closed", "3:44", list(`{"type": "bridge", "dns": {"nameservers": ["10.1.0.1"]}, `+ipam+`}`, `{"type": "egress", "allow": ["10.2.0.0/16"], "capabilities": {"egress": true}}`),
			list(`{"type": "bridge", "dns": {"nameservers": ["10.1.0.1"]}, `+ipam+`}`, `{"type": "egress", "allow": ["10.2.0.0/16", "10.1.0.1:53"], "capabilities": {"egress": true}}`)},
		{"dns-closed", "5:10", list(`{"type": "bridge", "isGateway": true, `+ipam+`}`, `{"type": "egress", "allow": ["10.2.0.0/16"]}`, `{"type": "dnsname"}`),
			list(`{"type": "bridge", "isGateway": true, `+ipam+`}`, `{"type": "egress", "allow": ["10.1.0.1:53"]}`, `{"type": "dnsname"}`)},
		{"dns-closed", "5:10", list(`{"type": "bridge", "isGateway": true, `+ipam+`}`, `{"type": "egress", "deny": ["10.1.0.0/24"]}`, `{"type": "dnsname"}`),
			list(`{"type": "bridge", "isGateway": true, `+ipam+`}`, `{"type": "egress", "internal": true}`, `{"type": "dnsname"}`)},
		{"dns-closed", "3:44", list(`{"type": "bridge", "dns": {"nameservers": ["10.1.0.1"]}, `+ipam+`}`, `{"type": "egress", "allow": ["10.2.0.0/16"]}`, `{"type": "dnsname"}`),
			list(`{"type": "bridge", "dns": {"nameservers": ["10.1.0.1"]}, `+ipam+`}`, `{"type": "egress", "allow": ["api.example.org"]}`, `{"type": "dnsname"}`)},
		{"dns-closed", "5:10", list(`{"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.7/24", "gateway": "10.1.0.9"}]}}`, `{"type": "egress", "allow": ["10.1.0.1:53"]}`, `{"type": "dnsname"}`),
			list(`{"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.7/24", "gateway": "10.1.0.9"}]}}`, `{"type": "egress", "allow": ["10.1.0.9:53"]}`, `{"type": "dnsname"}`)},
		{"lease-ends", "3:37", list(`{"type": "bridge", "ipam": {"type": "dhcp"}}`, `{"type": "egress", "allow": ["10.1.0.1"]}`), list(`{"type": "bridge", "ipam": {"type": "dhcp"}}`, `{"type": "egress", "deny": ["10.1.0.1"]}`)},
		{"mac-behind-lists", "5:20", list(bridge, `{"type": "egress", "deny": ["10.1.0.1"]}`, `{"type": "tuning", "mac": "02:00:00:00:00:01"}`), list(bridge, `{"type": "tuning", "mac": "02:00:00:00:00:01"}`, `{"type": "egress", "deny": ["10.1.0.1"]}`)},
		{"mac-behind-lists", "5:37", list(bridge, `{"type": "egress", "deny": ["10.1.0.1"]}`, `{"type": "tuning", "capabilities": {"mac": true}}`), list(bridge, `{"type": "egress", "deny": ["10.1.0.1"]}`, `{"type": "tuning", "mtu": 1400}`)},
		{"rate-too-low", "4:38", list(bridge, `{"type": "bandwidth", "ingressRate": 1000, "ingressBurst": 20000}`), list(bridge, `{"type": "bandwidth", "ingressRate": 64000, "ingressBurst": 20000}`)},
		{"unknown-key", "3:20", list(`{"type": "bridge", "isGatway": true}`), list(`{"type": "bridge", "_isGatway": true, "cni.dev/x": 1, "$schema": "s"}`)},
		{"unsafe-setting", "4:31", list(bridge, `{"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.route_localnet": "1"}}`), list(bridge, `{"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.route_localnet": "0"}}`)},
		{"unsafe-setting", "4:31", list(bridge, `{"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.accept_ra": "2"}}`), list(`{"type": "macvlan"}`, `{"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.accept_ra": "2"}}`)},
		{"unsafe-setting", "4:31", list(bridge, `{"type": "tuning", "sysctl": {"net/ipv4/conf/IFNAME/accept_source_route": "1"}}`), list(bridge, `{"type": "tuning", "sysctl": {"net/ipv4/conf/IFNAME/accept_source_route": "0"}}`)},
		{"unsafe-setting", "3:20", list(`{"type": "bridge", "acceptRA": true}`), list(`{"type": "macvlan", "acceptRA": true}`)},

		{"address-unusable", "3:61", list(hosts("224.0.5.0/24")), list(hosts("223.0.5.0/24"))},
		{"address-unusable", "3:61", list(hosts("127.1.0.0/16")), list(hosts("126.1.0.0/16"))},
		{"address-unusable", "3:61", list(hosts("ff05::/64")), list(hosts("fd05::/64"))},
		{"address-unusable", "3:73", list(fixed("::1/64")), list(fixed("fd00::1/64"))},
		{"network-address", "3:73", list(fixed("10.1.0.0/24")), list(fixed("10.1.0.0/31"))},
		{"network-address", "3:73", list(fixed("10.1.0.255/24")), list(fixed("10.1.0.255/23"))},
		{"network-address", "3:90", list(hosts(`10.1.0.0/24", "rangeStart": "10.1.0.0`)), list(hosts(`fd00::/64", "gateway": "fd00::`))},
		{"gateway-missing", "3:99", list(strings.Replace(fixed("10.1.0.7/32"), `"bridge",`, `"bridge", "isDefaultGateway": true,`, 1)), list(strings.Replace(fixed("10.1.0.7/32"), `"bridge",`, `"bridge", "isGateway": true,`, 1))},
		{"gateway-missing", "3:99", list(strings.Replace(fixed("10.1.0.7/32"), `"bridge",`, `"bridge", "isDefaultGateway": true,`, 1)), list(strings.Replace(fixed(`10.1.0.7/32", "gateway": "10.1.0.7`), `"bridge",`, `"bridge", "isDefaultGateway": true,`, 1))},
		{"network-address", "3:99", list(fixed(`10.1.0.7/24", "gateway": "10.1.0.0`)), list(fixed(`10.1.0.7/24", "gateway": "10.1.0.1`))},
		{"network-address", "3:87", list(hosts(`10.1.0.0/24", "gateway": "10.1.0.255`)), list(hosts(`10.1.0.0/24", "gateway": "10.1.0.254`))},
		{"gateway-missing", "3:58", list(`{"type": "ptp", "ipam": {"type": "host-local", "subnet": "fd00::7/128"}}`), list(`{"type": "ptp", "ipam": {"type": "host-local", "subnet": "fd00::7/128", "gateway": "fd00::1"}}`)},
		{"addresses-missing", "3:37", list(`{"type": "bridge", "ipam": {"type": "static", "routes": []}}`), list(`{"type": "bridge", "capabilities": {"ips": true}, "ipam": {"type": "static"}}`)},
		{"addresses-missing", "3:37", list(`{"type": "bridge", "ipam": {"type": "static", "addresses": []}}`), list(`{"type": "bridge", "args": {"cni": {"ips": ["10.1.0.7/24"]}}, "ipam": {"type": "static"}}`)},
		{"addresses-missing", "3:37", list(`{"type": "bridge", "ipam": {"type": "static", "addresses": []}}`), list(`{"type": "bridge", "runtimeConfig": {"ips": ["10.1.0.7/24"]}, "ipam": {"type": "static"}}`)},
		{"gateway-of-router", "3:20", list(`{"type": "bridge", "isGateway": true, "ipam": {"type": "dhcp"}}`), list(`{"type": "bridge", "isGateway": false, "ipam": {"type": "dhcp"}}`)},
		{"gateway-of-router", "3:20", list(`{"type": "bridge", "isDefaultGateway": true, "ipam": {"type": "dhcp"}}`), list(`{"type": "macvlan", "ipam": {"type": "dhcp"}}`)},
		{"sysctl-of-host", "4:31", list(bridge, `{"type": "tuning", "sysctl": {"net.core.rmem_max": "1"}}`), list(bridge, `{"type": "tuning", "sysctl": {"net.ipv4.tcp_rmem": "1"}}`)},
		{"sysctl-of-host", "4:31", list(bridge, `{"type": "tuning", "sysctl": {"net/netfilter/nf_conntrack_max": "1"}}`), list(bridge, `{"type": "tuning", "sysctl": {"net/netfilter/nf_conntrack_tcp_loose": "1"}}`)},
		{"ipv6-switched-off", "4:31", list(hosts("fd00::/64"), `{"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "1"}}`), list(hosts("10.1.0.0/24"), `{"type": "tuning", "sysctl": {"net.ipv6.conf.all.disable_ipv6": "1"}}`)},
		{"ipv6-switched-off", "4:31", list(fixed("fd00::7/64"), `{"type": "tuning", "sysctl": {"net/ipv6/conf/all/disable_ipv6": "1"}}`), list(fixed("fd00::7/64"), `{"type": "tuning", "sysctl": {"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.lo.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}}`)},

		{"pool-above-ports", "3:61", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.0.0.0/21"}}`), list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.0.0.0/22"}}`)},
		{"pool-above-ports", "3:74", list(`{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/16"}], [{"subnet": "fd00::/64"}]]}}`),
			list(`{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.0.0.0/16"}}`)},
		{"pool-above-ports", "3:61", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.0.0.0/16", "rangeStart": "10.0.0.10", "rangeEnd": "10.0.4.10"}}`),
			list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.0.0.0/16", "rangeStart": "10.0.0.10", "rangeEnd": "10.0.4.8"}}`)},
		{"pool-above-ports", "3:61", list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.0.0.0/16"}}`), list(`{"type": "bridge", "ipam": {"type": "host-local", "subnet": "fd00::/64"}}`)},
		{"key-case", "3:20", list(`{"type": "bridge", "HairpinMode": true}`), list(`{"type": "bridge", "hairpinMode": true}`)},
		{"only-cnibox", "3:20", list(`{"type": "bridge", "acceptRA": false}`), list(`{"type": "bridge", "enabledad": false}`)},
		{"unknown-plugin", "3:10", list(`{"type": "calico", "x": 1}`), list(bridge)},
		{"unread-capability", "3:37", list(`{"type": "bridge", "capabilities": {"dns": true}}`), list(`{"type": "bridge", "capabilities": {"mac": true, "ips": true}, ` + ipam + `}`)},
		{"unsent-capability", "4:37", list(bridge, `{"type": "egress", "capabilities": {"egress": true}}`), list(bridge, portmap, `{"type": "dnsname", "capabilities": {"aliases": true}}`, `{"type": "tuning", "capabilities": {"mac": true}}`)},
		{"version-missing", "1:1", strings.Replace(list(bridge), `"cniVersion": "1.0.0",`, "", 1), list(bridge)},
	}
	seen := map[string]bool{"reference-newer": true}
	for _, tt := range tests {
		seen[tt.code] = true
		if !slices.ContainsFunc(lint.Text("a.conflist", []byte(tt.bad), options), func(f lint.Finding) bool {
			return f.Code == tt.code && fmt.Sprintf("%d:%d", f.Line, f.Column) == tt.at
		}) {
			t.Errorf("no %s at %s in\n%s%v", tt.code, tt.at, tt.bad, lint.Text("a.conflist", []byte(tt.bad), options))
		}
		for _, f := range lint.Text("a.conflist", []byte(tt.good), options) {
			if f.Code == tt.code || f.Severity == finding.Error {
				t.Errorf("%v, in\n%s", f, tt.good)
			}
		}
	}
	for _, code := range []string{"ipv6-off", "master-missing", "mtu-above-master", "plugin-not-installed", "plugin-older", "route-overlap", // TestNode
		"bridge-shared", "file-ignored", "network-name-twice", "range-shared", "sorts-behind", "subnets-overlap", "wrong-extension", // TestTogether
		"config-elsewhere", "not-yaml", "template"} { // TestManifest
		seen[code] = true
	}
	for _, c := range lint.Codes() {
		if !seen[c.Name] {
			t.Errorf("no test has %s", c.Name)
		}
	}
}

func TestReference(t *testing.T) {
	text := []byte(list(`{"type": "bridge", "portIsolation": true}`))
	for reference, want := range map[string]int{"": 0, "1.6.2": 1, "1.7.0": 0, "v1.10.0": 0} {
		o := options
		o.Reference = reference
		if got := lint.Text("a.conflist", text, o); len(got) != want || want == 1 && got[0].Code != "reference-newer" {
			t.Errorf("%q: %v", reference, got)
		}
	}
}

// TestFix mends files, and leaves the rest of the text as it is.
func TestFix(t *testing.T) {
	for bad, want := range map[string]string{
		list(`{"type":   "macvlan" , "mastr" : "eth0" }`):                                                                                  list(`{"type":   "macvlan" , "master" : "eth0" }`),
		list(`{"type": "bridge", "isGatway": true}`):                                                                                       list(`{"type": "bridge", "isGatway": true}`), // a switch is not guessed
		list(bridge, `{"type": "portmap", "noSnat": true, "capabilities": {"portMappings": true}}`):                                        list(bridge, `{"type": "portmap", "noSnat": true, "capabilities": {"portMappings": true}}`),
		list(bridge, `{"type": "portmap", "noSnat": "true", "capabilities": {"portMappings": true}}`):                                      list(bridge, `{"type": "portmap", "noSnat": "true", "capabilities": {"portMappings": true}}`),
		list(`{"type": "bridge", "HAIRPINMODE": true,	"mtu":"1400"}`):                                                                      list(`{"type": "bridge", "hairpinMode": true,	"mtu":1400}`),
		list(`{"type": "bridge", "hairpinMode": "True",}`):                                                                                 list(`{"type": "bridge", "hairpinMode": true}`),
		list(bridge, `{"type": "portmap"}`):                                                                                                list(bridge, portmap),
		list(bridge, `{"type": "portmap", "capabilities": {"portMapings": true}}`):                                                         list(bridge, portmap),
		list(`{"type": "macvlan", "mode": "Private"}`):                                                                                     list(`{"type": "macvlan", "mode": "private"}`),
		list(bridge, `{"type": "tuning", "sysctl": {"net.core.somaxconn": 500}}`):                                                          list(bridge, `{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}`),
		list(`{"type": "ptp", "ipam": {"type": "host-local", "ranges": {"subnet": "10.1.0.7/24"}}}`):                                       list(`{"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]]}}`),
		list(`{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.5"}}`): list(`{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.5", "rangeEnd": "10.1.0.9"}}`),
		strings.Replace(list(bridge), "1.0.0", "v1.0.0", 1):                                                                                list(bridge),
		"\xef\xbb\xbf" + list(bridge):                                                                                                      list(bridge),
		list(`{"type": "bridge", "isGateway": false, "isGatway": true}`):                                                                   list(`{"type": "bridge", "isGateway": false, "isGatway": true}`), // which one?
		strings.Replace(list(bridge), "1.0.0", "1.0", 1):                                                                                   list(bridge),
		list(`{"type": "bridge", "hairpinMode": false, "HAIRPINMODE": true}`):                                                              list(`{"type": "bridge", "hairpinMode": false, "HAIRPINMODE": true}`), // and here?
		list(`{"type": "brigde"}`):                                                                                                         list(`{"type": "brigde"}`),
	} {
		fixed, done := lint.Fix("a.conflist", []byte(bad), options)
		if string(fixed) != want || (done == nil) != (bad == want) {
			t.Errorf("%s became\n%s\nwant\n%s\n%v", bad, fixed, want, done)
		}
		for _, f := range lint.Text("a.conflist", fixed, options) {
			if f.Fixable {
				t.Errorf("left: %v", f)
			}
		}
	}
}

// TestSuggestionsDoNotNegate: a key that says the opposite of another is no mistake in its spelling.
func TestSuggestionsDoNotNegate(t *testing.T) {
	suggestions := map[string]map[string]string{
		`{"type": "portmap", "KEY": true, "capabilities": {"portMappings": true}}`: {
			"noSnat": "", "unsnat": "", "snatt": `"snat"`, "nat": `"snat"`, "no-snat": "", "isNotSnat": ""},
		`{"type": "bridge", "KEY": true, "ipam": {}}`: {
			"isNotGateway": "", "noGateway": "", "is_not_gateway": "", "gateway": `"isGateway"`, "isNotDefaultGateway": "", "notIpMasq": "", "disableIpMasq": "",
			"disabledad": "", "disable-dad": "", "noDad": "", "enable_dad": `"enabledad"`, "enableContainerInterface": "", "containerInterface": "", "unforceAddress": ""},
	}
	for plugin, keys := range suggestions {
		for key, want := range keys {
			wantSuggestion(t, strings.Replace(plugin, "KEY", key, 1), key, want)
		}
	}
}

func wantSuggestion(t *testing.T, plugin, key, want string) {
	t.Helper()
	text := list(bridge, plugin)
	if strings.Contains(plugin, "bridge") {
		text = list(plugin)
	}
	list := lint.Text("a.conflist", []byte(text), options)
	if len(list) != 1 || list[0].Code != "unknown-key" || list[0].Remedy != want || list[0].Fixable {
		t.Errorf("%s: %+v, want the suggestion %s", key, list, want)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(list(bridge, portmap)))
	f.Add([]byte(list(`{"type": "chain", "plugins": [`+bridge+`]}`, `{"type": "flannel", "delegate": {"mtu": 1}, "ipam": {"subnet": 7}}`)))
	f.Add([]byte(`{"plugins": [{"ipam": {"type": "host-local", "ranges": [[{"subnet": "1.2.3.4/8", "exclude": [1]}], 7, null]}}], "cniVersions": [1], }`))
	f.Add([]byte(`{"type": "bridge", "ipam": [], "args": {"cni": 1}, "capabilities": {"mac": 1}, "dns": {"search": [[]]}} // x`))
	f.Add([]byte("kind: NetworkAttachmentDefinition\nspec:\n  config: '{\n    \"type\": \"bridge\", \"mtu\": \"1400\"\n  }'\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, x := range append(lint.Text("a.json", text, options), lint.Text("a.yaml", text, options)...) {
			if x.Line < 1 || x.Column < 1 || x.Summary == "" {
				t.Errorf("%+v", x)
			}
		}
		fixed, _ := lint.Fix("a.json", text, options)
		lint.Text("a.json", fixed, options)
	})
}
