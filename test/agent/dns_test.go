package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestDNSNames: containers of a network know each other by name and alias, over IPv4 and IPv6, from the moment at which ADD has returned until that at
// which DEL has.
func TestDNSNames(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	db := newNamed(t, host, 1, "db")
	db.awaitNames()
	web := newNamed(t, host, 1, "Web_1", "www", "shop.example")
	for _, name := range []string{"web_1", "WEB_1.dns.podman", "www", "www.dns.podman", "shop.example", "shop.example.dns.podman"} {
		db.is(name, dns.TypeA, web.v4)
		db.is(name, dns.TypeAAAA, web.v6)
		db.is(name, dns.TypeMX, "")
	}
	for _, network := range []string{"udp", "tcp"} {
		if got := db.askAt(network, gateway6(1), "www", dns.TypeAAAA); got != web.v6 {
			t.Errorf("by %s over IPv6: %q", network, got)
		}
		if got := db.askAt(network, gateway(1), "www", dns.TypeA); got != web.v4 {
			t.Errorf("by %s: %q", network, got)
		}
	}
	db.is(reverse(web.v4), dns.TypePTR, "web_1.dns.podman.")
	db.is(reverse(web.v6), dns.TypePTR, "web_1.dns.podman.")
	db.is("db", dns.TypeA, db.v4)
	db.is("dns.podman", dns.TypeA, "")
	db.is("nobody.dns.podman", dns.TypeA, "NXDOMAIN")
	db.is("www", dns.TypeAXFR, "REFUSED")
	web.is("db", dns.TypeAAAA, db.v6)

	twin := newNamed(t, host, 1, "other", "www", "more")
	if got := db.ask("www", dns.TypeA); got != web.v4+" "+twin.v4 && got != twin.v4+" "+web.v4 {
		t.Errorf("of two there are %q", got)
	}
	twin.leave()
	db.is("www", dns.TypeA, web.v4)
	db.is("more.dns.podman", dns.TypeA, "NXDOMAIN")

	for i := range chosen(20, 500) {
		c := newNamed(t, host, 1, fmt.Sprint("c", i))
		db.is(fmt.Sprint("c", i), dns.TypeA, c.v4)
		c.leave()
		db.is(fmt.Sprintf("c%d.dns.podman", i), dns.TypeA, "NXDOMAIN")
	}
}

// TestDNSNetworks: who is on two networks knows the names of both, others those of their own, and who is on none is refused.
func TestDNSNetworks(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	one, two := newNamed(t, host, 1, "one"), newNamed(t, host, 2, "two")
	both := newNamed(t, host, 1, "both")
	first := both.v4
	both.join(2, "eth1", "both")
	one.awaitNames()
	two.awaitNames()
	one.is("both", dns.TypeA, first)
	two.is("both", dns.TypeA, both.v4)
	for _, g := range []string{gateway(1), gateway(2)} {
		for name, want := range map[string]string{"one": one.v4, "two": two.v4} {
			if got := both.askAt("udp", g, name, dns.TypeA); got != want {
				t.Errorf("who is on both asks %s for %s: %q", g, name, got)
			}
		}
	}
	one.is("two", dns.TypeA, "NXDOMAIN") // the node's server says so
	one.is("two.dns.podman", dns.TypeA, "NXDOMAIN")
	one.is(reverse(two.v4), dns.TypePTR, "NXDOMAIN")
	if got := one.askAt("udp", gateway(2), "two", dns.TypeA); got != "REFUSED" {
		t.Errorf("at another network's gateway: %q", got)
	}
	for _, network := range []string{"udp", "tcp"} {
		a, err := exchange(&host.Namespace, network, gateway(1), query("one", dns.TypeA), netlab.Patience)
		if err != nil || texts(a) != "REFUSED" {
			t.Errorf("the host is answered %v, error %v", a, err)
		}
	}
}

// TestDNSPtp: containers that have the host alone for a neighbour find each other, too.
func TestDNSPtp(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	list := `{"cniVersion": "1.0.0", "name": "alone", "plugins": [
		{"type": "ptp", "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}], "ranges": [[{"subnet": "10.71.0.0/24"}], [{"subnet": "fd00:71::/64"}]]}},
		{"type": "dnsname"}]}`
	address := map[string]string{}
	pods := map[string]*netlab.Pod{}
	for _, name := range []string{"web", "db"} {
		pods[name] = host.NewPod(t, name)
		rt := pods[name].RuntimeConf(nil)
		rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", name}}
		result, err := host.AddList(list, rt)
		if err != nil {
			t.Fatal(err)
		}
		v4, v6 := netlab.Addresses(result)
		address[name+" A"], address[name+" AAAA"] = v4.String(), v6.String()
	}
	for _, server := range []string{"10.71.0.1", "fd00:71::1"} {
		for asked, want := range address {
			name, kind, _ := strings.Cut(asked, " ")
			netlab.Eventually(t, func() error {
				a, err := exchange(&pods["db"].Namespace, "udp", server, query(name, dns.StringToType[kind]), netlab.Patience)
				if err == nil && texts(a) != want {
					err = fmt.Errorf("%s: %q, want %q", asked, texts(a), want)
				}
				return err
			})
		}
	}
}

// TestDNSAgentAway: without the agent the gateway refuses at once, the container has the node's servers behind it, and nothing is lost with kill -9.
func TestDNSAgentAway(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	resolvConf(t, host, "127.0.0.53")
	host.Feed(t, "nameserver 192.0.2.254\nnameserver 2001:db8:2::254\n", "sh", "-c", "mkdir -p /run/systemd/resolve; cat > /run/systemd/resolve/resolv.conf")
	web := newNamed(t, host, 1, "web")
	db := &inDNS{Pod: host.NewPod(t, "db"), TB: t, host: host}
	result := db.join(1, "eth0", "db")
	if got := nameservers(result); got != "10.70.1.1 fd00:70:1::1 192.0.2.254 2001:db8:2::254" || fmt.Sprint(result.DNS.Search) != "[dns.podman]" {
		t.Errorf("the result has %+v", result.DNS)
	}
	closed := func() {
		t.Helper()
		for _, network := range []string{"udp", "tcp"} {
			for _, server := range []string{gateway(1), gateway6(1)} {
				t.Logf("the agent is away; web, asked of %s by %s: ECONNREFUSED after %s", server, network, ms(db.isRefused(network, server, "web")))
			}
		}
	}
	closed()
	for range 2 {
		a := start(t, host, "--dns")
		db.awaitNames()
		db.is("web", dns.TypeA, web.v4)
		db.is("web", dns.TypeAAAA, web.v6)
		a.kill()
		closed()
	}
	late := newNamed(t, host, 1, "late")
	a := start(t, host, "--dns")
	db.awaitNames()
	db.is("late", dns.TypeA, late.v4)
	if s := a.status().DNS; s == nil || strings.Join(s.Addresses, " ") != gateway(1)+" "+gateway6(1) || s.Questions["name"] == 0 || len(s.Wrong) > 0 {
		t.Errorf("its status is %+v", s)
	}
	if value := a.metric(`cnibox_agent_dns_questions_total{outcome="name"}`); value == "0" {
		t.Error("the metrics have no question")
	}
	a.stop()
	closed()
	for _, c := range []*inDNS{web, db, late} {
		c.leave()
	}
	host.MustRun(t, "sh", "-c", "! ls -A /run/cnibox/names | grep .")
}

// TestDNSPlaceTaken: somebody else listens at all addresses. The agent says so, and takes the place when it is free.
func TestDNSPlaceTaken(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	cmd := host.Command("dnsmasq", "--keep-in-foreground", "--port=53", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--pid-file=", "--user=root")
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
	t.Cleanup(ended)
	netlab.Until(t, "dnsmasq to listen", func() bool {
		_, err := host.Output(host.Command("sh", "-c", "ss -lnu | grep -q 0.0.0.0:53"))
		return err == nil
	})
	web := newNamed(t, host, 1, "web")
	a := start(t, host, "--dns")
	if s := a.status().DNS; len(s.Addresses) > 0 || len(s.Wrong) != 2 {
		t.Errorf("its status is %+v", s)
	}
	if n := a.log.count("names can't be answered at"); n != 2 {
		t.Errorf("it says %d times what is wrong", n)
	}
	ended()
	netlab.Eventually(t, func() error {
		a, err := exchange(&web.Namespace, "udp", gateway(1), query("web", dns.TypeA), silence)
		if err == nil && texts(a) != web.v4 {
			err = errors.New(texts(a))
		}
		return err
	})
}
