package agent

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestDNSMany has many containers on several networks. Each is found by another on its network when its ADD has returned, and by none elsewhere.
func TestDNSMany(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns", "--every", "1h")
	networks, each := chosen(2, 10), chosen(10, 100)
	first := map[int]*inDNS{}
	for i := range networks {
		first[i] = newNamed(t, host, i, "first")
		first[i].awaitNames()
	}
	for number := range each - 1 {
		for i := range networks {
			name := fmt.Sprintf("c%d-of-%d", number, i)
			c := newNamed(t, host, i, name)
			first[i].is(name, dns.TypeA, c.v4)
			first[(i+1)%networks].is(name+".dns.podman", dns.TypeA, "NXDOMAIN")
			if number%10 == 0 { // the kernel has room for some thousand neighbours, of all namespaces together
				c.is("first", dns.TypeAAAA, first[i].v6)
			}
		}
	}
}
