package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func parseText(t testing.TB, text, version string) (*types100.Result, error) {
	t.Helper()
	o, err := conf.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return Parse(o, version)
}

// results are in the newest form, between them with a value for every key there is.
var results = map[string]string{
	"full": `{"cniVersion": "1.1.0",
		"interfaces": [{"name": "cni0", "mac": "02:00:00:00:00:01"}, {"name": "veth12345678", "mac": "02:00:00:00:00:02", "mtu": 1450},
			{"name": "eth0", "mac": "02:00:00:00:00:03", "mtu": 1450, "sandbox": "/run/netns/web", "socketPath": "/run/vhost.sock", "pciID": "0000:00:1f.6"}],
		"ips": [{"address": "10.88.0.2/16", "gateway": "10.88.0.1", "interface": 2}, {"address": "fd00::2/64", "gateway": "fd00::1", "interface": 0},
			{"address": "10.89.0.2/24"}, {"address": "fd01::2/128", "interface": 2}],
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00::1"}, {"dst": "192.0.2.0/24", "scope": 253},
			{"dst": "10.0.0.0/8", "gw": "10.88.0.9", "mtu": 1400, "advmss": 1360, "priority": 7, "table": 100, "scope": 0}],
		"dns": {"nameservers": ["10.88.0.1", "fd00::1"], "domain": "example.com", "search": ["a", "b"], "options": ["ndots:5"]}}`,
	"one address": `{"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/web"}], "ips": [{"address": "10.88.0.2/16", "interface": 0}]}`,
	"IPv6 only":   `{"cniVersion": "1.1.0", "ips": [{"address": "fd00::2/64", "gateway": "fd00::1"}], "routes": [{"dst": "::/0"}, {"dst": "0.0.0.0/0"}]}`,
	"strings that need escapes": `{"cniVersion": "1.1.0", "interfaces": [{"name": "a\"b\\c", "sandbox": "/run/\u00e9\t\u0001\b<&>\u2028\ufffd\u007f"}],
		"ips": [{"address": "10.88.0.2/16"}]}`,
	"strings that are no UTF-8": "{\"cniVersion\": \"1.1.0\", \"interfaces\": [{\"name\": \"a\xff\"}], \"ips\": [{\"address\": \"10.88.0.2/16\"}]}",
}

// eachForm calls f for each result in the form of each version, as the CNI library prints it.
func eachForm(t *testing.T, f func(t *testing.T, result types.Result, version string, printed []byte)) {
	for name, text := range results {
		newest, err := create.CreateFromBytes([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, version := range plugin.Versions("") {
			t.Run(name+" "+version, func(t *testing.T) {
				result, err := newest.GetAsVersion(version)
				if err != nil {
					t.Fatal(err)
				}
				var printed bytes.Buffer
				if err := result.PrintTo(&printed); err != nil {
					t.Fatal(err)
				}
				f(t, newest, version, printed.Bytes())
			})
		}
	}
}

// TestPrintResult compares with the CNI library, byte for byte.
func TestPrintResult(t *testing.T) {
	eachForm(t, func(t *testing.T, result types.Result, version string, want []byte) {
		if diff := cmp.Diff(string(want), string(Print(result.(*types100.Result), version))); diff != "" {
			t.Errorf("-library +ours:\n%s", diff)
		}
	})
}

// TestParseResult compares what we read with what the library reads.
func TestParseResult(t *testing.T) {
	eachForm(t, func(t *testing.T, _ types.Result, version string, printed []byte) {
		theirs, err := create.CreateFromBytes(printed)
		if err != nil {
			t.Fatal(err)
		}
		newest, err := theirs.GetAsVersion(plugin.CurrentVersion)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.MarshalIndent(newest, "", "    ")
		if err != nil {
			t.Fatal(err)
		}
		ours, err := parseText(t, string(printed), "bogus, for the document names its version")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(Print(ours, plugin.CurrentVersion))); diff != "" {
			t.Errorf("-library +ours:\n%s", diff)
		}
	})
}

// The library can't print a result without addresses in the oldest forms; the forms themselves can hold it.
func TestResultWithoutAddresses(t *testing.T) {
	_, network, _ := net.ParseCIDR("0.0.0.0/0")
	r := &types100.Result{Interfaces: []*types100.Interface{{Name: "eth0"}}, Routes: []*types.Route{{Dst: *network}}}
	for _, version := range []string{"0.1.0", "0.2.0"} {
		want := "{\n    \"cniVersion\": \"" + version + "\",\n    \"dns\": {}\n}"
		if got := string(Print(r, version)); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestParseResultRefuses(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"unknown version", `{"prevResult": {"cniVersion": "2.0.0"}}`, `key "prevResult.cniVersion": unknown CNI version "2.0.0"`},
		{"version of a wrong type", `{"prevResult": {"cniVersion": 1}}`, `key "prevResult.cniVersion": want a string, got the number 1`},
		{"list of a wrong type", `{"prevResult": {"ips": {}}}`, `key "prevResult.ips": want a list of objects, got an object`},
		{"bad address", `{"prevResult": {"ips": [{"address": "10.0.0.2/24"}, {"address": "10.0.0.2"}]}}`,
			`key "prevResult.ips[1].address": want an address with prefix length, such as 10.88.0.2/24, got "10.0.0.2"`},
		{"no address", `{"prevResult": {"ips": [{"gateway": "10.0.0.1"}]}}`, `key "prevResult.ips[0].address": want an address with prefix length`},
		{"bad gateway", `{"prevResult": {"ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1/24"}]}}`,
			`key "prevResult.ips[0].gateway": want an address such as 10.88.0.1, got "10.0.0.1/24"`},
		{"gateway with a zone", `{"prevResult": {"ips": [{"address": "fe80::2/64", "gateway": "fe80::1%eth0"}]}}`, `key "prevResult.ips[0].gateway"`},
		{"no destination", `{"prevResult": {"routes": [{"gw": "10.0.0.1"}]}}`, `key "prevResult.routes[0].dst": want a network such as 0.0.0.0/0, got none`},
		{"name of a wrong type", `{"prevResult": {"interfaces": [{"name": 1}]}}`, `key "prevResult.interfaces[0].name": want a string`},
		{"DNS of a wrong type", `{"prevResult": {"dns": {"search": "a"}}}`, `key "prevResult.dns.search": want a list of strings`},
		{"old form", `{"prevResult": {"cniVersion": "0.2.0", "ip4": {"ip": "x"}}}`, `key "prevResult.ip4.ip": want an address with prefix length`},
		{"old form's route", `{"prevResult": {"cniVersion": "0.2.0", "ip6": {"ip": "fd00::2/64", "routes": [{}]}}}`, `key "prevResult.ip6.routes[0].dst"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := conf.Parse([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(o.Object("prevResult"), "1.0.0")
			var e *types.Error
			if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || e.Details == "" || !strings.Contains(e.Msg, tt.want) {
				t.Errorf("error %#v\nwant code 7, details, and %s", err, tt.want)
			}
		})
	}
}

func TestParseResultLenient(t *testing.T) {
	o, err := conf.Parse([]byte(`{"interfaces": [7, {"name": "eth0", "mac": 1}], "ips": [{"address": "x"}, {"address": "10.0.0.2/24", "gateway": "x"}],
		"routes": [{}, {"dst": "0.0.0.0/0"}], "dns": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(o.Lenient(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	want, err := parseText(t, `{"interfaces": [{"name": "eth0"}], "ips": [{"address": "10.0.0.2/24"}], "routes": [{"dst": "0.0.0.0/0"}]}`, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseResultTakesMappedAddressesForIPv4(t *testing.T) {
	r, err := parseText(t, `{"ips": [{"address": "10.0.0.2/24", "gateway": "::ffff:10.0.0.1"}]}`, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.IPs[0].Gateway.String(); got != "10.0.0.1" {
		t.Errorf("gateway %s", got)
	}
}

func TestResultFinds(t *testing.T) {
	r, err := parseText(t, results["full"], "1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if f := ContainerInterface(r, "eth0", "/run/netns/web"); f != r.Interfaces[2] {
		t.Errorf("ContainerInterface = %v", f)
	}
	if f := ContainerInterface(r, "eth0", "/run/netns/db"); f != nil {
		t.Errorf("ContainerInterface of another sandbox = %v", f)
	}
	var got []string
	for _, p := range Prefixes(AddressesOf(r, "eth0")) {
		got = append(got, p.String())
	}
	if diff := cmp.Diff([]string{"10.88.0.2/16", "10.89.0.2/24", "fd01::2/128"}, got); diff != "" {
		t.Errorf("AddressesOf, -want +got:\n%s", diff)
	}
	odd, err := parseText(t, `{"ips": [{"address": "10.0.0.2/24", "interface": 7}, {"address": "10.0.0.3/24", "interface": -1}]}`, "1.1.0")
	if err != nil || len(AddressesOf(odd, "eth0")) != 2 {
		t.Errorf("AddressesOf has %d of 2 addresses whose interface is not known, %v", len(AddressesOf(odd, "eth0")), err)
	}
}

// FuzzParseResult reads any result. What can be read is printed in every form, and a form that is printed, read and printed again
// stays the same.
func FuzzParseResult(f *testing.F) {
	for _, text := range results {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"cniVersion":"1.0.0","ips":[{"address":"::ffff:10.0.0.1/120","interface":-1}],"routes":[{"dst":"10.0.0.7/8","table":4294967296}]}`))
	f.Add([]byte(`{"CNIVERSION":"0.2.0","IP4":{"IP":"10.0.0.1/24","routes":null},"ip6":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := conf.Parse(data)
		if err != nil {
			return
		}
		if lenient, err := Parse(o.Lenient(), plugin.CurrentVersion); err == nil {
			stable(t, lenient)
		}
		if strict, err := Parse(o, plugin.CurrentVersion); err == nil {
			stable(t, strict)
		}
	})
}

func stable(t *testing.T, r *types100.Result) {
	for _, version := range plugin.Versions("") {
		first := Print(r, version)
		if !json.Valid(first) {
			t.Fatalf("%s: printed what is no JSON: %s", version, first)
		}
		again, err := parseText(t, string(first), version)
		if err != nil {
			t.Fatalf("%s: can't read what was printed: %v\n%s", version, err, first)
		}
		if second := Print(again, version); string(first) != string(second) {
			t.Fatalf("%s: printed\n%s\nthen\n%s", version, first, second)
		}
		// Handing it on without printing it makes no difference either.
		handed, err := Parse(FormOf(r, version), version)
		if err != nil || string(Print(handed, version)) != string(first) {
			t.Fatalf("%s: handed on (%v) as\n%s\nwant\n%s", version, err, Print(handed, version), first)
		}
	}
}

// A result is handed on in the form of the version, which may have less in it.
func TestFormOf(t *testing.T) {
	result := &types100.Result{
		Interfaces: []*types100.Interface{{Name: "eth0", Mtu: 1500}},
		IPs:        []*types100.IPConfig{{Address: IPNet(netip.MustParsePrefix("10.0.0.2/24"))}, {Address: IPNet(netip.MustParsePrefix("10.0.0.3/24"))}},
	}
	for version, want := range map[string]struct{ interfaces, mtu, ips int }{
		"0.2.0": {0, 0, 1}, "0.4.0": {1, 0, 2}, "1.0.0": {1, 1500, 2}, "1.1.0": {1, 1500, 2},
	} {
		got, err := Parse(FormOf(result, version), version)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Interfaces) != want.interfaces || len(got.IPs) != want.ips || want.interfaces == 1 && got.Interfaces[0].Mtu != want.mtu {
			t.Errorf("%s: %+v, want %+v", version, got, want)
		}
	}
}

func TestLast(t *testing.T) {
	for p, want := range map[string]string{"10.1.0.0/24": "10.1.0.255", "10.1.0.0/23": "10.1.1.255", "10.1.0.4/32": "10.1.0.4", "fd00::/120": "fd00::ff", "255.0.0.0/8": "255.255.255.255"} {
		if got := Last(netip.MustParsePrefix(p)); got.String() != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
}
