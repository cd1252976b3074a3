package node

import "testing"

// TestReachInOneSpelling: entries are printed as they are enforced, each once.
func TestReachInOneSpelling(t *testing.T) {
	r := ReadReach([]byte(`{"allow": ["API.Example.com.:443-443", "192.0.2.7/32", "2001:DB8:0::/32", "192.0.2.7", "[2001:db8::7]:53/udp"], "deny": ["*.Example.org", "*.example.org."]}`))
	const want = "api.example.com:443, 192.0.2.7, 2001:db8::/32, [2001:db8::7]:53/udp but not *.example.org"
	if got := r.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := ReadReach([]byte(`{"allow": []}`)).String(); got != "nothing" {
		t.Errorf("an empty list leaves open: %s", got)
	}
}
