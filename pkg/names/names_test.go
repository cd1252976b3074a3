package names

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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

// TestVersion: a change of a file is seen, also one in the same tick of the kernel's clock, which leaves the file's size and time as they were.
func TestVersion(t *testing.T) {
	file, missing := filepath.Join(t.TempDir(), "resolv.conf"), filepath.Join(t.TempDir(), "missing")
	write := func(text string, at time.Time) Version {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		return versionOf(file, missing)
	}
	now := time.Now()
	if v := write("nameserver 192.0.2.1", now.Add(-time.Hour)); !versionOf(file, missing).Is(v) || versionOf(file, file).Is(v) || versionOf(missing, missing).Is(v) {
		t.Error("versions of the same file differ, or those of others don't")
	}
	before := write("nameserver 192.0.2.1", now.Add(time.Hour)) // as if it were read that soon after the change, on any machine
	if write("nameserver 192.0.2.2", now.Add(time.Hour)).Is(before) {
		t.Error("another server in the same tick is not seen")
	}
	before = write("nameserver 192.0.2.1", now.Add(-time.Hour))
	if write("nameserver 192.0.2.1\n", now.Add(-time.Hour)).Is(before) || write("nameserver 192.0.2.1", now.Add(-time.Minute)).Is(before) {
		t.Error("another size or time is not seen")
	}
	if err := os.Rename(file, file+".old"); err != nil {
		t.Fatal(err)
	}
	if write("nameserver 192.0.2.2", now.Add(-time.Hour)).Is(before) {
		t.Error("another file is not seen")
	}
}

func TestRecordText(t *testing.T) {
	r := &Record{Names: []string{"web", "www"}, Domain: "dns.podman", Addresses: []netip.Addr{netip.MustParseAddr("10.88.0.2")}}
	if text := r.String(); text != "name web, www in dns.podman for 10.88.0.2" {
		t.Error(text)
	}
}
