package names

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for _, name := range []string{"a", "web", "Web_1", "-x-", "shop.example", strings.Repeat("x", 63), strings.Repeat("x.", 126) + "x"} {
		if err := Validate(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "a.", ".a", "a..b", "a b", "a/b", "a\x00", "müller", "*", `a\.b`, strings.Repeat("x", 64), strings.Repeat("x.", 126) + "xx"} {
		if Validate(name) == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

func TestServersIn(t *testing.T) {
	got := serversIn("nameserver 192.0.2.53\nnameserver ::ffff:192.0.2.53\nnameserver 2001:db8::53\nnameserver fe80::53%eth0\nnameserver 127.0.0.53\nnameserver 0.0.0.0\nnameserver dns.example\n")
	var elsewhere []string
	for _, a := range got {
		if IsElsewhere(a) {
			elsewhere = append(elsewhere, a.String())
		}
	}
	if len(got) != 4 || !slices.Equal(elsewhere, []string{"192.0.2.53", "2001:db8::53"}) {
		t.Errorf("servers %v, of which %v are elsewhere", got, elsewhere)
	}
}

func TestRecordText(t *testing.T) {
	r := &Record{Names: []string{"web", "www"}, Domain: "dns.podman", Addresses: []netip.Addr{netip.MustParseAddr("10.88.0.2")}}
	if text := r.String(); text != "name web, www in dns.podman for 10.88.0.2" {
		t.Error(text)
	}
}
