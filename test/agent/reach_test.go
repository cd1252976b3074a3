package agent

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// listed is network number i, whose containers may reach what a list has.
func listed(i int, lists string) string {
	return fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "net%d", "plugins": [
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
	c.v4, c.v6, c.result = v4.String(), v6.String(), result
	for _, gateway := range []string{gateway(network), gateway6(network)} { // the agent may hear of the first container a moment after ADD
		netlab.Eventually(t, func() error {
			_, err := exchange(&c.Namespace, "tcp", gateway, query("localhost.invalid", dns.TypeA), netlab.Patience)
			return err
		})
	}
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
			c.isAt(network, server, "API.example", dns.TypeA, "198.51.100.1 cdn.example.")
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
	for _, name := range []string{"pkg.example", "no.pkg.example", "secret.example", `a\.pkg.example`, "cdn.example", reverse("198.51.100.1"), "."} {
		c.is(name, dns.TypeA, "REFUSED")
	}
	for _, name := range []string{"api.example.svc.cluster.local", "a.pkg.example.svc.cluster.local"} {
		c.is(name, dns.TypeA, "NXDOMAIN") // a C library goes on to the next domain of its search list
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

// TestReachRebound: a name leads to no address of the node, nor of a private network, unless the list has that, too.
func TestReachRebound(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	z := zone{}
	var allow []string
	for i, c := range []struct{ kind, address string }{
		{"A", "127.0.0.1"}, {"A", "169.254.169.254"}, {"A", "0.0.0.0"}, {"A", netlab.HostIPv4}, {"A", "10.70.1.1"}, {"A", "192.168.1.1"}, {"A", "100.64.0.1"}, {"A", "224.0.0.1"}, {"A", "255.255.255.255"},
		{"AAAA", "::1"}, {"AAAA", netlab.HostIPv6}, {"AAAA", "fd00:70:1::1"}, {"AAAA", "fe80::1"}, {"AAAA", "::ffff:198.51.100.1"}, {"AAAA", "::ffff:127.0.0.1"}, {"AAAA", "2002:c633:6401::1"},
		{"AAAA", "64:ff9b::10.70.1.1"}, {"AAAA", "::198.51.100.1"}, {"AAAA", "ff02::1"},
		{"A", "168.63.129.16"}, {"A", "192.0.0.192"}, {"A", "198.18.0.1"}, {"AAAA", "64:ff9b:1::a46:101"}, {"AAAA", "::ffff:0:10.70.1.1"}, {"AAAA", "2001::1"}, {"AAAA", "fec0::1"},
	} {
		name := fmt.Sprintf("n%d.example", i)
		z[name+"."] = has(fmt.Sprintf("%s. 60 %s %s", name, c.kind, c.address))
		allow = append(allow, fmt.Sprintf("%q", name))
	}
	z["inside.example."] = has("inside.example. 60 A 10.99.0.7", "inside.example. 60 A 10.98.0.7")
	z["nat64.example."] = has("nat64.example. 60 AAAA 64:ff9b::198.51.100.1")
	z.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	lists := fmt.Sprintf(`"allow": ["inside.example:8000-8010", "nat64.example", "10.99.0.0/16:53", %s]`, strings.Join(allow, ", "))
	c := newListed(t, host, 1, "rebound", listed(1, lists), nil)
	for i := range allow {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			c.is(fmt.Sprintf("n%d.example", i), kind, "")
		}
	}
	c.is("inside.example", dns.TypeA, "10.99.0.7") // which its own entry has open, for its port alone
	if sets := host.MustRun(t, "nft", "list", "table", "inet", "cnibox-egress"); strings.Contains(sets, "10.99.0.7") {
		t.Errorf("a name opens a private address:\n%s", sets)
	}
	c.is("nat64.example", dns.TypeAAAA, "64:ff9b::c633:6401")
	// Where another list has the network, it is meant.
	narrow := newListed(t, host, 2, "narrow", listed(2, `"allow": ["10.99.0.0/16", "192.0.2.80"]`), map[string]any{"egress": map[string]any{"allow": []string{"inside.example:5432"}}})
	narrow.is("inside.example", dns.TypeA, "10.99.0.7")
	if sets := host.MustRun(t, "nft", "list", "table", "inet", "cnibox-egress"); !strings.Contains(sets, "10.99.0.7") {
		t.Errorf("the name opens nothing in the network's list:\n%s", sets)
	}
	apart := newListed(t, host, 3, "apart", listed(3, `"allow": ["a.example"]`), map[string]any{"egress": map[string]any{"allow": []string{"b.example"}}})
	apart.is("a.example", dns.TypeA, "REFUSED")
	apart.is("b.example", dns.TypeA, "REFUSED")
}

// TestReachNode: an address that a name has opened is closed when it becomes the node's.
func TestReachNode(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	newServers(t, out, "443", "198.51.100.1")
	zone{"api.example.": has("api.example. 60 A 198.51.100.1")}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	c := newListed(t, host, 1, "moved", listed(1, `"allow": ["api.example"]`), nil)
	c.is("api.example", dns.TypeA, "198.51.100.1")
	c.reaches("198.51.100.1:443")
	host.MustRun(t, "ip", "address", "add", "198.51.100.1/32", "dev", "lo")
	host.ServeTCP(t, "198.51.100.1:443")
	c.isKept("198.51.100.1:443")
}

// TestReachDenied: of two lists that are alike but for a name that one denies, neither opens anything for the other.
func TestReachDenied(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	newServers(t, out, "443", "198.51.100.1")
	zone{"secret.example.": has("secret.example. 60 A 198.51.100.1")}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	open := newListed(t, host, 1, "open", listed(1, `"allow": ["*.example", "secret.example"]`), nil)
	denied := newListed(t, host, 2, "denied", listed(2, `"allow": ["*.example"], "deny": ["secret.example"]`), nil)
	open.is("secret.example", dns.TypeA, "198.51.100.1")
	open.reaches("198.51.100.1:443")
	denied.is("secret.example", dns.TypeA, "REFUSED")
	denied.isKept("198.51.100.1:443")
}

// talk returns a flow of UDP to a server, from always the same port.
func (c *inDNS) talk(server string) *net.UDPConn {
	c.Helper()
	var conn *net.UDPConn
	var err error
	c.Do(func() {
		to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server))
		conn, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(c.v4), Port: 40000}, to)
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close() })
	return conn
}

// isAnswered sends a packet of the flow, and reports whether an answer comes.
func isAnswered(conn *net.UDPConn, patience time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("?")); err != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1024))
	return err == nil
}

// setsOfNames returns the sets of what names lead to.
func setsOfNames(t testing.TB, host *netlab.Host) (list []string) {
	t.Helper()
	for _, line := range strings.Split(host.MustRun(t, "nft", "list", "sets", "inet"), "\n") {
		if _, name, is := strings.Cut(line, "set names"); is {
			list = append(list, "names"+strings.Fields(name)[0])
		}
	}
	return list
}

// TestReachOver: when a name's time is over its connections go on, and no new one is made; the next container with the address can't go on with them.
func TestReachOver(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	newServers(t, out, "443", "198.51.100.1")
	out.ServeUDP(t, "198.51.100.1:443")
	zone{"api.example.": has("api.example. 5 A 198.51.100.1")}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	network := listed(1, `"allow": ["api.example"]`)
	c := newListed(t, host, 1, "over", network, nil)
	c.is("api.example", dns.TypeA, "198.51.100.1")
	own := c.talk("198.51.100.1:443")
	if !isAnswered(own, netlab.Patience) {
		t.Fatal("there is no connection")
	}
	sets := setsOfNames(t, host)
	if len(sets) != 2 {
		t.Fatalf("sets of names: %v, want one of each family", sets)
	}
	for _, s := range sets {
		host.MustRun(t, "nft", "flush", "set", "inet", "cnibox-egress", s)
	}
	c.isKept("198.51.100.1:443")
	if !isAnswered(own, netlab.Patience) {
		t.Error("the connection does not go on")
	}
	if err := host.DelList(network, c.RuntimeConf(nil)); err != nil {
		t.Fatal(err)
	}
	next := newListed(t, host, 1, "next", strings.Replace(network, `"host-local",`, fmt.Sprintf(`"host-local", "dataDir": %q,`, t.TempDir()), 1), nil)
	if next.v4 != c.v4 {
		t.Fatalf("the next container has %s, and the first had %s", next.v4, c.v4)
	}
	if isAnswered(next.talk("198.51.100.1:443"), silence) {
		t.Error("the next container goes on with the connection of the first")
	}
}

// TestReachAgentAway: without the agent the names that are known hold, and all others fail at once; it goes on when the agent is back.
func TestReachAgentAway(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	newServers(t, out, "443", "198.51.100.1", "198.51.100.2")
	zone{"a.example.": has("a.example. 60 A 198.51.100.1"), "b.example.": has("b.example. 60 A 198.51.100.2")}.serve(t, out, netlab.OutsideIPv4)
	a := start(t, host, "--dns")
	c := newListed(t, host, 1, "away", listed(1, `"allow": ["a.example", "b.example"]`), nil)
	c.is("a.example", dns.TypeA, "198.51.100.1")
	a.kill()
	c.reaches("198.51.100.1:443")
	for _, server := range []string{gateway(1), gateway6(1), netlab.OutsideIPv4} {
		t.Logf("the agent is away; b.example, on the list, asked of %s: ECONNREFUSED after %s", server, ms(c.isRefused("udp", server, "b.example")))
	}
	c.isKept("198.51.100.2:443")
	if err := host.StatusList(listed(1, `"allow": ["a.example", "b.example"]`)); err == nil || !strings.Contains(err.Error(), "cnictl agent --dns") {
		t.Errorf("STATUS without the agent: %v", err)
	}
	start(t, host, "--dns")
	c.is("b.example", dns.TypeA, "198.51.100.2")
	c.reaches("198.51.100.2:443")
	host.MustRun(t, "nft", "delete", "table", "inet", "cnibox-egress")
	netlab.Eventually(t, func() error {
		a, err := exchange(&c.Namespace, "udp", gateway(1), query("b.example", dns.TypeA), silence)
		if err == nil && texts(a) != "198.51.100.2" {
			err = errors.New(texts(a))
		}
		return err
	})
	c.reaches("198.51.100.2:443")
}

var lookups = flag.Int("lookups", 400, "how many names TestReachMany looks up") // make test-egress looks up 10,000

// TestReachMany: while what names lead to changes with each question, and others forge answers, no first connection is refused and none leads elsewhere.
func TestReachMany(t *testing.T) {
	t.Parallel()
	const containers = 20
	host, out := newNamedHost(t)
	// All of these are the outside's, whose server says at which address it was asked.
	for _, network := range []string{"198.51.100.0/24", "203.0.113.0/24"} {
		out.MustRun(t, "ip", "route", "add", "local", network, "dev", "lo")
	}
	out.ServeTCP(t, "0.0.0.0:443")
	out.ServeTCP(t, "0.0.0.0:80")
	var turn atomic.Uint32
	z := zone{}
	for i := range 3 {
		name := fmt.Sprintf("name%d.example.", i)
		z[name] = func(w dns.ResponseWriter, q *dns.Msg) {
			forged := new(dns.Msg).SetReply(q)
			rr, _ := dns.NewRR(name + " 60 A 203.0.113.1")
			forged.Answer, forged.Id = []dns.RR{rr}, q.Id+1
			_ = w.WriteMsg(forged)
			n := turn.Add(1)
			has(fmt.Sprintf("%s 1 CNAME pool.example.", name), fmt.Sprintf("pool.example. 1 A 198.51.100.%d", n%250+1), fmt.Sprintf("pool.example. 1 A 198.51.100.%d", (n+7)%250+1))(w, q)
		}
	}
	z.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	allow := []string{`"name0.example:443"`, `"name1.example:443/tcp"`, `"name2.example:400-500"`}
	for i := range 50 {
		allow = append(allow, fmt.Sprintf(`"10.200.%d.0/24:5432"`, i))
	}
	config := listed(1, fmt.Sprintf(`"allow": [%s]`, strings.Join(allow, ", ")))
	var all []*inDNS
	for i := range containers {
		all = append(all, newListed(t, host, 1, fmt.Sprint("many", i), config, nil))
	}
	var wait sync.WaitGroup
	for i, c := range all {
		wait.Go(func() {
			for n := range *lookups / containers {
				network := []string{"udp", "tcp"}[n%10/9]
				var answer []string
				if err := netlab.Await(func() error { // on a busy machine the node's server may answer too late
					answer = strings.Fields(c.askAt(network, "192.0.2.99", fmt.Sprintf("name%d.example", (i+n)%3), dns.TypeA))
					if len(answer) != 3 {
						return fmt.Errorf("answer %q", answer)
					}
					return nil
				}); err != nil {
					t.Error(err)
					return
				}
				for _, address := range answer[:2] {
					c.reaches(address + ":443")
				}
				if n%50 == 0 {
					c.isKept(answer[0] + ":80")
					c.isKept("203.0.113.1:443")
				}
			}
		})
	}
	wait.Wait()
}

// TestReachChains: of an answer only what is about the name counts, however names lead to others.
func TestReachChains(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	newServers(t, out, "443", "198.51.100.1", "198.51.100.2")
	var chain []string
	for i := range 20 {
		chain = append(chain, fmt.Sprintf("c%d.example. 60 CNAME c%d.example.", i, i+1))
	}
	slices.Reverse(chain)
	zone{
		"c0.example.":      has(append(chain, "c20.example. 60 A 198.51.100.1", "c21.example. 60 A 198.51.100.2")...),
		"loop.example.":    has("loop.example. 60 CNAME pool.example.", "pool.example. 60 CNAME loop.example."),
		"beside.example.":  has("other.example. 60 A 198.51.100.2"),
		"refuses.example.": func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) },
	}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	config := listed(1, `"allow": ["c0.example", "loop.example", "beside.example", "refuses.example", "nobody.example"]`)
	c := newListed(t, host, 1, "chains", config, nil)
	if got := c.inTime("udp", gateway(1), "c0.example", dns.TypeA, ""); !strings.HasPrefix(got, "198.51.100.1 c1.example. c10.example.") || strings.Contains(got, "198.51.100.2") {
		t.Errorf("a chain of names: %q", got)
	}
	c.reaches("198.51.100.1:443")
	c.is("loop.example", dns.TypeA, "loop.example. pool.example.")
	c.is("beside.example", dns.TypeA, "")
	c.is("nobody.example", dns.TypeA, "NXDOMAIN")
	c.is("refuses.example", dns.TypeA, "REFUSED")
	c.isKept("198.51.100.2:443")
	long := append([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"), strings.Repeat("\x3f"+strings.Repeat("x", 63), 64)+"\x00\x00\x01\x00\x01"...) // a name of 4 KiB
	conn, err := c.DialContext(t.Context(), "udp", gateway(1)+":53")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(long); err != nil {
		t.Fatal(err)
	}
	c.is("c0.example", dns.TypeTXT, "")

	printed := host.MustRun(t, netlab.Cnictl(t), "show", c.Pod.Name())
	if !strings.Contains(printed, "open by name  198.51.100.1, as c0.example, until ") {
		t.Errorf("show does not say what is open by name:\n%s", printed)
	}
	if err := host.DelList(config, c.RuntimeConf(nil)); err != nil {
		t.Fatal(err)
	}
	if left := setsOfNames(t, host); left != nil || strings.Contains(host.MustRun(t, "ls", "/run/cnibox/names"), "\n") {
		t.Errorf("left after DEL: %v", left)
	}
}

// TestReachShare: a container that has names open more addresses than its share gets an error. Another one with an equal list is not kept from anything.
func TestReachShare(t *testing.T) {
	t.Parallel()
	const each, share = 32, 1024
	host, out := newNamedHost(t)
	newServers(t, out, "443", "203.0.113.1")
	z := zone{"good.example.": has("good.example. 60 A 203.0.113.1")}
	for i := range share/each + 1 {
		var records []string
		for n := range each {
			at := i*each + n
			records = append(records, fmt.Sprintf("n%d.example. 3600 A 198.51.%d.%d", i, at>>8, at&0xff))
		}
		z[fmt.Sprintf("n%d.example.", i)] = has(records...)
	}
	z.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	config := listed(1, `"allow": ["*.example:443"]`)
	greedy, good := newListed(t, host, 1, "greedy", config, nil), newListed(t, host, 1, "good", config, nil)
	for i := range share / each {
		if got := greedy.inTime("tcp", gateway(1), fmt.Sprintf("n%d.example", i), dns.TypeA, ""); strings.Count(got, "198.51.") != each {
			t.Fatalf("answer %d: %q", i, got)
		}
	}
	greedy.isAt("tcp", gateway(1), fmt.Sprintf("n%d.example", share/each), dns.TypeA, "SERVFAIL") // beyond its share
	good.is("good.example", dns.TypeA, "203.0.113.1")
	good.reaches("203.0.113.1:443")
}
