package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cnibox/cnibox/pkg/conf"
)

func ptr[T any](v T) *T { return &v }

// sameResult compares results; an empty list is no list.
func sameResult(a, b *Result) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}))
}

func parseText(t testing.TB, text, version string) (*Result, error) {
	t.Helper()
	o, err := conf.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return ParseResult(o, version)
}

// full has a value for every key there is.
func full() *Result {
	return &Result{
		Interfaces: []Interface{
			{Name: "cni0", MAC: "02:00:00:00:00:01"},
			{Name: "veth12345678", MAC: "02:00:00:00:00:02", MTU: 1450},
			{Name: "eth0", MAC: "02:00:00:00:00:03", MTU: 1450, Sandbox: "/run/netns/web", SocketPath: "/run/vhost.sock", PCIID: "0000:00:1f.6"},
		},
		IPs: []IP{
			{Address: netip.MustParsePrefix("10.88.0.2/16"), Gateway: netip.MustParseAddr("10.88.0.1"), Interface: ptr(2)},
			{Address: netip.MustParsePrefix("fd00::2/64"), Gateway: netip.MustParseAddr("fd00::1"), Interface: ptr(0)},
			{Address: netip.MustParsePrefix("10.89.0.2/24")},
			{Address: netip.MustParsePrefix("fd01::2/128"), Interface: ptr(2)},
		},
		Routes: []Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("::/0"), GW: netip.MustParseAddr("fd00::1")},
			{Dst: netip.MustParsePrefix("10.0.0.0/8"), GW: netip.MustParseAddr("10.88.0.9"), MTU: 1400, AdvMSS: 1360, Priority: 7, Table: ptr(100), Scope: ptr(0)},
			{Dst: netip.MustParsePrefix("192.0.2.0/24"), Scope: ptr(253)},
		},
		DNS: DNS{Nameservers: []string{"10.88.0.1", "fd00::1"}, Domain: "example.com", Search: []string{"a", "b"}, Options: []string{"ndots:5"}},
	}
}

var results = []struct {
	name   string
	result *Result
}{
	{"full", full()},
	{"one address", &Result{
		Interfaces: []Interface{{Name: "eth0", Sandbox: "/run/netns/web"}},
		IPs:        []IP{{Address: netip.MustParsePrefix("10.88.0.2/16"), Interface: ptr(0)}},
	}},
	{"IPv6 only", &Result{
		IPs:    []IP{{Address: netip.MustParsePrefix("fd00::2/64"), Gateway: netip.MustParseAddr("fd00::1")}},
		Routes: []Route{{Dst: netip.MustParsePrefix("::/0")}, {Dst: netip.MustParsePrefix("0.0.0.0/0")}},
	}},
	{"strings that need escapes", &Result{
		Interfaces: []Interface{{Name: `a"b\c`, Sandbox: "/run/\u00e9\t\x01<&>\u2028"}},
		IPs:        []IP{{Address: netip.MustParsePrefix("10.88.0.2/16")}},
	}},
}

func generic(t *testing.T, doc []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return v
}

// What we print for a version is what libcni makes of our newest form when it
// converts it to that version.
func TestResultPrintsAsTheFieldConverts(t *testing.T) {
	for _, tt := range results {
		newest, err := create.Create(CurrentVersion, tt.result.JSON(CurrentVersion))
		if err != nil {
			t.Fatalf("%s: %v\n%s", tt.name, err, tt.result.JSON(CurrentVersion))
		}
		for _, version := range Versions("") {
			t.Run(tt.name+" "+version, func(t *testing.T) {
				converted, err := newest.GetAsVersion(version)
				if err != nil {
					t.Fatal(err)
				}
				want, err := json.Marshal(converted)
				if err != nil {
					t.Fatal(err)
				}
				got := tt.result.JSON(version)
				if diff := cmp.Diff(generic(t, want), generic(t, got)); diff != "" {
					t.Errorf("-libcni +ours:\n%s", diff)
				}
			})
		}
	}
}

// What libcni reads from what we print, and what we read from it, is the same.
func TestResultIsReadAsTheFieldReads(t *testing.T) {
	for _, tt := range results {
		for _, version := range Versions("") {
			t.Run(tt.name+" "+version, func(t *testing.T) {
				doc := tt.result.JSON(version)
				theirs, err := create.CreateFromBytes(doc)
				if err != nil {
					t.Fatalf("%v\n%s", err, doc)
				}
				converted, err := theirs.GetAsVersion(CurrentVersion)
				if err != nil {
					t.Fatal(err)
				}
				want, err := json.Marshal(converted)
				if err != nil {
					t.Fatal(err)
				}
				ours, err := parseText(t, string(doc), "bogus, for the document names its version")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(generic(t, want), generic(t, ours.JSON(CurrentVersion))); diff != "" {
					t.Errorf("-libcni +ours:\n%s", diff)
				}
			})
		}
	}
}

func TestResultRoundTrip(t *testing.T) {
	for _, tt := range results {
		for _, version := range []string{"1.0.0", "1.1.0"} {
			t.Run(tt.name+" "+version, func(t *testing.T) {
				got, err := parseText(t, string(tt.result.JSON(version)), version)
				if err != nil {
					t.Fatal(err)
				}
				if diff := sameResult(tt.result, got); diff != "" {
					t.Errorf("-printed +read:\n%s", diff)
				}
			})
		}
	}
}

// The reference plugins can't print a result without addresses in the oldest
// forms, and fail after all is done; the forms themselves can hold it.
func TestResultWithoutAddresses(t *testing.T) {
	r := &Result{Interfaces: []Interface{{Name: "eth0", Sandbox: "/run/netns/web"}}, Routes: []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}}
	for _, version := range []string{"0.1.0", "0.2.0"} {
		want := fmt.Sprintf("{\n    \"cniVersion\": %q,\n    \"dns\": {}\n}", version)
		if got := string(r.JSON(version)); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if _, err := create.CreateFromBytes(r.JSON(version)); err != nil {
			t.Errorf("libcni: %v", err)
		}
	}
	for _, version := range []string{"0.3.1", "1.1.0"} {
		if _, err := create.CreateFromBytes(r.JSON(version)); err != nil {
			t.Errorf("libcni: %v", err)
		}
	}
}

func TestResultLooksLikeThis(t *testing.T) {
	r := &Result{
		Interfaces: []Interface{{Name: "eth0", MAC: "02:00:00:00:00:03", MTU: 1450, Sandbox: "/run/netns/web"}},
		IPs:        []IP{{Address: netip.MustParsePrefix("10.88.0.2/16"), Gateway: netip.MustParseAddr("10.88.0.1"), Interface: ptr(0)}},
	}
	tests := map[string]string{
		"1.1.0": `{
    "cniVersion": "1.1.0",
    "interfaces": [
        {
            "name": "eth0",
            "mac": "02:00:00:00:00:03",
            "mtu": 1450,
            "sandbox": "/run/netns/web"
        }
    ],
    "ips": [
        {
            "interface": 0,
            "address": "10.88.0.2/16",
            "gateway": "10.88.0.1"
        }
    ]
}`,
		"0.3.1": `{
    "cniVersion": "0.3.1",
    "interfaces": [
        {
            "name": "eth0",
            "mac": "02:00:00:00:00:03",
            "sandbox": "/run/netns/web"
        }
    ],
    "ips": [
        {
            "version": "4",
            "interface": 0,
            "address": "10.88.0.2/16",
            "gateway": "10.88.0.1"
        }
    ],
    "dns": {}
}`,
		"0.2.0": `{
    "cniVersion": "0.2.0",
    "ip4": {
        "ip": "10.88.0.2/16",
        "gateway": "10.88.0.1"
    },
    "dns": {}
}`,
	}
	for version, want := range tests {
		if got := string(r.JSON(version)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", version, got, want)
		}
	}
	if got, want := string((&Result{}).JSON("1.1.0")), "{\n    \"cniVersion\": \"1.1.0\"\n}"; got != want {
		t.Errorf("empty: got\n%s\nwant\n%s", got, want)
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
			_, err = ParseResult(o.Object("prevResult"), "1.0.0")
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeInvalidConfig || e.Details == "" || !strings.Contains(e.Msg, tt.want) {
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
	got, err := ParseResult(o.Lenient(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	want := &Result{
		Interfaces: []Interface{{Name: "eth0"}},
		IPs:        []IP{{Address: netip.MustParsePrefix("10.0.0.2/24")}},
		Routes:     []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
	}
	if diff := sameResult(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseResultTakesMappedAddressesForIPv4(t *testing.T) {
	r, err := parseText(t, `{"ips": [{"address": "10.0.0.2/24", "gateway": "::ffff:10.0.0.1"}]}`, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParseAddr("10.0.0.1"); r.IPs[0].Gateway != want {
		t.Errorf("gateway %v, want %v", r.IPs[0].Gateway, want)
	}
}

func TestResultFinds(t *testing.T) {
	r := full()
	if i, f := r.ContainerInterface("eth0", "/run/netns/web"); i != 2 || f != &r.Interfaces[2] {
		t.Errorf("ContainerInterface = %d, %v", i, f)
	}
	if i, f := r.ContainerInterface("eth0", "/run/netns/db"); i != -1 || f != nil {
		t.Errorf("ContainerInterface of another sandbox = %d, %v", i, f)
	}
	var got []string
	for _, ip := range r.AddressesOf("eth0") {
		got = append(got, ip.Address.String())
	}
	if diff := cmp.Diff([]string{"10.88.0.2/16", "10.89.0.2/24", "fd01::2/128"}, got); diff != "" {
		t.Errorf("AddressesOf, -want +got:\n%s", diff)
	}
	odd := &Result{IPs: []IP{{Address: netip.MustParsePrefix("10.0.0.2/24"), Interface: ptr(7)}, {Address: netip.MustParsePrefix("10.0.0.3/24"), Interface: ptr(-1)}}}
	if n := len(odd.AddressesOf("eth0")); n != 2 {
		t.Errorf("AddressesOf has %d of 2 addresses whose interface is not known", n)
	}
}

// FuzzParseResult reads any result. What can be read is printed in every form,
// and a form that is printed, read and printed again stays the same.
func FuzzParseResult(f *testing.F) {
	for _, tt := range results {
		for _, version := range Versions("") {
			f.Add(tt.result.JSON(version))
		}
	}
	f.Add([]byte(`{"cniVersion":"1.0.0","ips":[{"address":"::ffff:10.0.0.1/120","interface":-1}],"routes":[{"dst":"10.0.0.7/8","table":4294967296}]}`))
	f.Add([]byte(`{"CNIVERSION":"0.2.0","IP4":{"IP":"10.0.0.1/24","routes":null},"ip6":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := conf.Parse(data)
		if err != nil {
			return
		}
		if lenient, err := ParseResult(o.Lenient(), CurrentVersion); err == nil {
			stable(t, lenient)
		}
		if strict, err := ParseResult(o, CurrentVersion); err == nil {
			stable(t, strict)
		}
	})
}

func stable(t *testing.T, r *Result) {
	for _, version := range Versions("") {
		first := r.JSON(version)
		if !json.Valid(first) {
			t.Fatalf("%s: printed what is no JSON: %s", version, first)
		}
		again, err := parseText(t, string(first), version)
		if err != nil {
			t.Fatalf("%s: can't read what was printed: %v\n%s", version, err, first)
		}
		if second := again.JSON(version); string(first) != string(second) {
			t.Fatalf("%s: printed\n%s\nthen\n%s", version, first, second)
		}
		// Handing it on without printing it makes no difference either.
		handed, err := r.In(version)
		if err != nil || string(handed.JSON(version)) != string(first) {
			t.Fatalf("%s: handed on (%v) as\n%s\nwant\n%s", version, err, handed.JSON(version), first)
		}
	}
}
