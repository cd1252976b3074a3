package runtimes

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// What the recipe of sandboxes has in its list, and machines that it does not have.
const (
	registry, resolver  = "192.0.2.80", "192.0.2.53"
	elsewhere, metadata = "192.0.2.99", "169.254.169.254"
)

// TestSandbox has containers on the network of the recipe, and tries in them what a user would: what the list has works, and nothing else does. The log
// has what a program sees, which the recipe shows.
func TestSandbox(t *testing.T) {
	for _, c := range containerds {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.useSandboxes(t)
			d := n.startContainerd(t, c, ctrNamespace, 1)
			n.checkSandbox(t, d.ctrForeground(t, "one"), d.ctrForeground(t, "two"))
		})
	}
	t.Run("podman", func(t *testing.T) {
		n := newNode(t)
		n.useSandboxes(t)
		n.setUpPodman(t)
		before := processes(t)
		n.checkSandbox(t, n.podmanRun(t, "one", "--network", "sandbox"), n.podmanRun(t, "two", "--network", "sandbox"))
		awaitEnd(t, before)
	})
}

// useSandboxes makes the network of the recipe the one that containers are attached to, and has all machines serve that are tried.
func (n *node) useSandboxes(t *testing.T) {
	t.Helper()
	n.writeFile(t, conflistFile, observed(t, networkOf(t, "recipes/sandboxes")))
	for _, address := range []string{registry, resolver, elsewhere, metadata} {
		n.outside.MustRun(t, "ip", "address", "add", address+"/32", "dev", "lo")
	}
	n.MustRun(t, "ip", "route", "add", metadata, "via", netlab.OutsideIPv4)
	for _, at := range []string{registry + ":443", registry + ":80", elsewhere + ":443", metadata + ":80"} {
		n.outside.ServeTCP(t, at)
	}
	n.ServeTCP(t, ":22")
	for _, at := range []string{resolver, elsewhere} {
		n.serveNames(t, at)
	}
}

// serveNames has the outside answer for the registry's name at an address.
func (n *node) serveNames(t *testing.T, address string) {
	t.Helper()
	var conn net.PacketConn
	var err error
	n.outside.Do(func() { conn, err = net.ListenPacket("udp", address+":53") })
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
		answer := new(dns.Msg).SetReply(asked)
		if asked.Question[0].Qtype == dns.TypeA {
			answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: asked.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(registry)}}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
}

// checkSandbox tries what the list has in the first container, and what it does not have.
func (n *node) checkSandbox(t *testing.T, one, two container) {
	t.Helper()
	n.awaitPage(t, one.address)
	n.awaitPage(t, two.address)
	ask := func(address string, port int) string {
		return fmt.Sprintf("nc -w %v %s %d </dev/null", silence.Seconds(), address, port)
	}
	for _, c := range []struct {
		what, command string
		works         bool
	}{
		{"the DNS server of the list", "nslookup registry.example " + resolver, true},
		{"the registry of the list", ask(registry, 443), true},
		{"itself", ask("127.0.0.1", 80), true},
		{"another port of the registry", ask(registry, 80), false},
		{"another machine", ask(elsewhere, 443), false},
		{"another DNS server", "nslookup registry.example " + elsewhere, false},
		{"the metadata service", ask(metadata, 80), false},
		{"the node", ask(netlab.HostIPv4, 22), false},
		{"the gateway", ask("10.89.0.1", 22), false},
		{"another container", ask(two.address, 80), false},
		{"a ping of the registry", fmt.Sprintf("ping -c 1 -W %v %s", silence.Seconds(), registry), false},
	} {
		out := one.exec(t, "("+c.command+") 2>&1; echo exit code $?")
		t.Logf("%s: $ %s\n%s", c.what, c.command, out)
		if succeeded := strings.HasSuffix(strings.TrimSpace(out), "exit code 0"); succeeded != c.works {
			t.Errorf("%s: %q, want works: %v", c.what, out, c.works)
		}
	}
	one.remove(t)
	two.remove(t)
}
