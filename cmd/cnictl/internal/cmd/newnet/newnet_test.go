package newnet

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// home is a host with a card in a LAN, a Wi-Fi card, one that nobody uses, and a port of a bridge.
func home() *Host {
	return &Host{
		Links: []Link{
			{Name: "lo", Up: true},
			{Name: "eth0", Up: true, Card: true, Addresses: prefixes("192.0.2.253/24", "2001:db8::5/64")},
			{Name: "wlan0", Up: true, Card: true, WiFi: true, Addresses: prefixes("198.51.100.2/24")},
			{Name: "spare0", Card: true},
			{Name: "port0", Up: true, Card: true, Master: true},
		},
		Uplink:   "eth0",
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.254")},
	}
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestMake(t *testing.T) {
	lan := []Range{{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.19")}}
	both := append(lan, Range{netip.MustParseAddr("2001:db8::100"), netip.MustParseAddr("2001:db8::1ff")})
	for _, tt := range []struct {
		options Options
		has     string // the file, without its white space
		says    string // of what was chosen, or the error
	}{
		{Options{Kind: "bridge", Isolated: true, NoPorts: true}, `},{"type":"firewall","ingressPolicy":"isolated"}]}`, "subnet 10.112.0.0/24 free"},
		{Options{Kind: "bridge", Closed: true, Allow: []string{"192.0.2.7:443"}}, `{"type":"egress","allow":["192.0.2.7:443"],"capabilities":{"egress":true}}`, "egress closed"},
		{Options{Kind: "bridge", Closed: true, Domain: "dns.podman", Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}}, `{"type":"egress","allow":["10.9.0.1:53"],`, "egress closed"},
		{Options{Kind: "bridge", Closed: true}, `{"type":"egress","allow":[],`, "egress closed"},
		{Options{Kind: "bridge", Limit: 64_000}, `{"type":"bandwidth","ingressRate":64000,"ingressBurst":1000000,"egressRate":64000,"egressBurst":1000000,`, "burst 1000000 bits"},
		{Options{Kind: "bridge", Domain: "dns.podman"}, `{"type":"dnsname","domainName":"dns.podman","capabilities":{"aliases":true}}]}`, "names in dns.podman"},
		{Options{Kind: "bridge", Subnets: prefixes("10.1.0.0/16", "fd00::/64")}, `"ranges":[[{"subnet":"10.1.0.0/16"}],[{"subnet":"fd00::/64"}]]}`, "name bridge free"},
		{Options{Kind: "bridge", Subnets: prefixes("10.8.0.0/21")}, `"ranges":[[{"subnet":"10.8.0.0/21"}]]`, "containers at most 1023"},
		{Options{Kind: "macvlan", Ranges: lan}, `"master":"eth0","ipam":{"type":"host-local","ranges":[[{"subnet":"192.0.2.0/24","gateway":"192.0.2.254","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.19"}]],"routes":[{"dst":"0.0.0.0/0"}]}`, "master eth0 the default route's"},
		{Options{Kind: "ipvlan", Ranges: both}, `[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::100","rangeEnd":"2001:db8::1ff"}]],"routes":[{"dst":"0.0.0.0/0"}]}`, "subnet 2001:db8::/64 that of the address 2001:db8::5/64"},
		{Options{Kind: "macvlan", Master: "spare0", Subnets: prefixes("10.1.0.0/16")}, `"master":"spare0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/16"}]]}`, "spare0 is down"},
		{Options{Kind: "host-device", Master: "spare0"}, `"plugins":[{"type":"host-device","device":"spare0"}]`, "addresses none"},
		{Options{Kind: "macvlan", Master: "wlan0", DHCP: true}, "", "make an ipvlan: cnictl new ipvlan"},
		{Options{Kind: "ipvlan", Master: "wlan0", Ranges: []Range{{netip.MustParseAddr("198.51.100.10"), netip.MustParseAddr("198.51.100.19")}}}, `"master":"wlan0"`, "198.51.100.2/24 of wlan0"},
		{Options{Kind: "ipvlan", DHCP: true}, "", "--dhcp does not work with ipvlan"},
		{Options{Kind: "macvlan", Master: "port0", DHCP: true}, "", "port of a bridge"},
		{Options{Kind: "macvlan", Master: "lo", DHCP: true}, "", "this host has eth0, wlan0, spare0"},
		{Options{Kind: "macvlan", Master: "spare0"}, "", "no IPv4 address that says which LAN"},
		{Options{Kind: "macvlan"}, "", "such as --range 192.0.2.233-192.0.2.252"},
		{Options{Kind: "host-device", Master: "eth0"}, "", "take another one: spare0"},
		{Options{Kind: "host-device", Master: "port0"}, "", "port of a bridge"},
		{Options{Kind: "vrf"}, "", "no kind of network"},
	} {
		o := tt.options
		o.CNIVersion, o.ConfDir = "1.0.0", t.TempDir()
		plan, err := Make(o, home())
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, c := range plan.Choice {
				got += strings.Join([]string{c.What, c.Is, c.Why}, " ") + "\n"
			}
			if text := strings.Join(strings.Fields(string(plan.Text)), ""); tt.has == "" || !strings.Contains(text, tt.has) {
				t.Errorf("%+v: %q is not in %s", tt.options, tt.has, text)
			}
		}
		if (err == nil) != (tt.has != "") || !strings.Contains(got, tt.says) {
			t.Errorf("%+v: %s\nwant %q", tt.options, got, tt.says)
		}
	}
	nowhere := home()
	nowhere.Uplink = ""
	if _, err := Make(Options{Kind: "macvlan", DHCP: true}, nowhere); err == nil || !strings.Contains(err.Error(), "--master is missing") {
		t.Errorf("without a default route: %v", err)
	}
}

func TestSuggest(t *testing.T) {
	for _, tt := range []struct{ address, gateway, want string }{
		{"192.0.2.1/24", "192.0.2.254", "192.0.2.234-192.0.2.253"},
		{"192.0.2.254/24", "192.0.2.253", "192.0.2.233-192.0.2.252"},
		{"192.0.2.1/24", "192.0.2.240", "192.0.2.241-192.0.2.254"},
		{"192.0.2.1/28", "192.0.2.2", "192.0.2.11-192.0.2.14"},
		{"192.0.2.1/30", "192.0.2.2", "invalid IP-invalid IP"},
		{"2001:db8::1/64", "192.0.2.2", "invalid IP-invalid IP"},
	} {
		_, r := Suggest(&Link{Addresses: prefixes(tt.address)}, &Host{Gateways: []netip.Addr{netip.MustParseAddr(tt.gateway)}})
		if r.String() != tt.want {
			t.Errorf("%s, gateway %s: %s, want %s", tt.address, tt.gateway, r, tt.want)
		}
	}
}

func TestFileName(t *testing.T) {
	for _, tt := range []struct {
		there string
		first bool
		want  string
	}{
		{"", false, "10-net.conflist"},
		{"", true, "10-net.conflist"},
		{"10-a.conflist", false, "10-net.conflist"},
		{"10-z.conf", false, "11-net.conflist"},
		{"87-podman.conflist", false, "88-net.conflist"},
		{"99-z.conflist", false, "net.conflist"},
		{"10-a.conflist", true, "09-net.conflist"},
		{"10-z.conflist", true, "10-net.conflist"},
		{"00-a.conflist", true, ""},
		{"README", false, "10-net.conflist"},
	} {
		dir := t.TempDir()
		if tt.there != "" {
			if err := os.WriteFile(filepath.Join(dir, tt.there), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := &maker{Options{ConfDir: dir, TakesOne: true, First: tt.first}, home(), &Plan{Name: "net"}}
		if err := m.chooseFile(); (err == nil) != (tt.want != "") || err == nil && m.plan.Path != filepath.Join(dir, tt.want) {
			t.Errorf("%s, first %v: %s, %v; want %s", tt.there, tt.first, m.plan.Path, err, tt.want)
		}
	}
}

// TestWrite replaces no file, and lets everybody read.
func TestWrite(t *testing.T) {
	p := &Plan{Path: filepath.Join(t.TempDir(), "made", "10-a.conflist"), Text: []byte("{}\n")}
	if err := p.Write(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(p.Path); err != nil || info.Mode() != 0o644 {
		t.Error(info, err)
	}
	if err := p.Write(); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("the second: %v", err)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]int64{"100mbit": 100_000_000, "64kbit": 64_000, "32gbit": 32_000_000_000, "63kbit": 0, "33gbit": 0, "100": 0, "100Mbit": 0, "-1mbit": 0, "": 0} {
		if got, err := ParseRate(text); got != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
}

// FuzzParseRange refuses what it can't read, and reads again what it has read.
func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"192.0.2.1-192.0.2.9", "fd00::1-fd00::ff", "192.0.2.9-192.0.2.1", "fe80::1%eth0-fe80::2%eth0", "1.2.3.4", "-", "::ffff:1.2.3.4-1.2.3.5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRange(text)
		if err != nil {
			return
		}
		if again, err := ParseRange(r.String()); err != nil || again != r || !r.contains(r.First) || !r.contains(r.Last) {
			t.Errorf("%q: %s, %v", text, r, err)
		}
	})
}
