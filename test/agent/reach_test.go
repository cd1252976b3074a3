package agent

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// listed is network number i, whose containers may reach what a list has.
func listed(i int, lists string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "net%d", "plugins": [
		{"type": "bridge", "bridge": "names%[1]d", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
			"ranges": [[{"subnet": "10.70.%[1]d.0/24"}], [{"subnet": "fd00:70:%[1]d::/64"}]]}},
		{"type": "egress", "capabilities": {"egress": true}, %s}]}`, i, lists)
}

// newListed attaches a container to a network with lists, and to none that gives it a name.
func newListed(t testing.TB, host *netlab.Host, network int, name, config string, capabilities map[string]any) *inDNS {
	t.Helper()
	c := &inDNS{Pod: host.NewPod(t, name), TB: t, host: host, network: network}
	result, err := host.AddList(config, c.RuntimeConf(capabilities))
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := netlab.Addresses(result)
	c.v4, c.v6 = v4.String(), v6.String()
	return c
}

// reaches makes sure that a server answers at an address.
func (c *inDNS) reaches(address string) {
	c.Helper()
	if _, err := c.DialTCP(address, netlab.Patience); err != nil {
		c.Errorf("%s does not reach %s: %v", c.Pod.Name(), address, err)
	}
}

// isKept makes sure that a server, which others reach, is out of reach.
func (c *inDNS) isKept(address string) {
	c.Helper()
	if answer, err := c.DialTCP(address, silence); err == nil {
		c.Errorf("%s reaches %s: %s", c.Pod.Name(), address, answer)
	}
}

// newServers are addresses of the outside at which servers answer.
func newServers(t testing.TB, out *netlab.Outside, port string, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		out.MustRun(t, "ip", "address", "add", a, "dev", "lo", "nodad")
		out.ServeTCP(t, net.JoinHostPort(a, port))
	}
}

// TestReachByName: what names on the list lead to is open when the answer comes, for the ports of the entry, and nothing else is.
func TestReachByName(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	newServers(t, out, "443", "198.51.100.1", "198.51.100.2", "198.51.100.3", "2001:db8:51::1")
	out.ServeTCP(t, "198.51.100.1:80")
	asked := make(chan string, 100)
	zone{
		"api.example.": func(w dns.ResponseWriter, q *dns.Msg) {
			asked <- q.String()
			if q.Question[0].Qtype == dns.TypeAAAA {
				has("api.example. 5 AAAA 2001:db8:51::1")(w, q)
				return
			}
			has("api.example. 5 CNAME cdn.example.", "cdn.example. 5 A 198.51.100.1", "other.example. 5 A 198.51.100.9")(w, q)
		},
		"a.b.pkg.example.": has("a.b.pkg.example. 5 A 198.51.100.2"),
		"pkg.example.":     has("pkg.example. 5 A 198.51.100.3"),
		"no.pkg.example.":  has("no.pkg.example. 5 A 198.51.100.3"),
	}.serve(t, out, netlab.OutsideIPv4)
	a := start(t, host, "--dns")
	c := newListed(t, host, 1, "listed", listed(1, `"allow": ["api.example:443/tcp", "*.pkg.example", "192.0.2.80"], "deny": ["no.pkg.example"]`), nil)
	for _, kept := range []string{"198.51.100.1:443", "198.51.100.2:443", "[2001:db8:51::1]:443"} {
		c.isKept(kept)
	}
	// Whichever server is asked, the resolver answers.
	for _, network := range []string{"udp", "tcp"} {
		for _, server := range []string{gateway(1), gateway6(1), "192.0.2.99", netlab.OutsideIPv4, "198.51.100.77"} {
			if got := c.askAt(network, server, "API.example", dns.TypeA); got != "198.51.100.1 cdn.example." {
				t.Errorf("%s asks %s by %s: %q", c.Pod.Name(), server, network, got)
			}
		}
	}
	c.reaches("198.51.100.1:443")
	c.isKept("198.51.100.1:80")
	c.isKept("198.51.100.2:443")
	c.is("api.example", dns.TypeAAAA, "2001:db8:51::1")
	c.reaches("[2001:db8:51::1]:443")
	c.is("a.b.pkg.example", dns.TypeA, "198.51.100.2")
	c.reaches("198.51.100.2:443")
	before := len(asked)
	for _, name := range []string{"pkg.example", "no.pkg.example", "secret.example", `a\.pkg.example`, "api.example.evil.example", "cdn.example", reverse("198.51.100.1"), "."} {
		c.is(name, dns.TypeA, "REFUSED")
	}
	c.is("api.example", dns.TypeTXT, "")
	c.is("api.example", dns.TypeHTTPS, "")
	if len(asked) != before {
		t.Error("the node's server was asked for what is not on the list")
	}
	c.isKept("198.51.100.3:443")
	close(asked)
	for q := range asked {
		if strings.Contains(q, "API") {
			t.Errorf("the container chose the letters of the question:\n%s", q)
		}
	}
	netlab.Until(t, "the log to have what was refused", func() bool {
		return a.log.count(`name=secret.example`) == 1
	})
	if err := host.CheckList(listed(1, `"allow": ["api.example:443/tcp", "*.pkg.example", "192.0.2.80"], "deny": ["no.pkg.example"]`), c.RuntimeConf(nil)); err != nil {
		t.Error(err)
	}
}
