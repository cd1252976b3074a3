package agent

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// probeNames returns what probe says of names on network 1 over IPv4: the outcome, and the reason if it failed.
func probeNames(t *testing.T, host *netlab.Host, flags ...string) (said string) {
	t.Helper()
	out, _ := host.Output(host.Command(netlab.Cnictl(t), append([]string{"probe", "net1", "--json"}, flags...)...)) // fails if any test does
	var report struct {
		Tests []struct {
			Name, Family, Outcome string
			Lost                  struct{ Reason, Remedy string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, p := range report.Tests {
		if strings.HasPrefix(p.Name, "names") && p.Family == "IPv4" {
			said += p.Name + ": " + p.Outcome + " " + p.Lost.Reason + " " + p.Lost.Remedy
		}
	}
	return said
}

// TestProbeNames: on a network with names on its lists probe asks the agent, and no question of its own choice leaves the node.
func TestProbeNames(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	asked := make(chan string, 10)
	zone{"api.example.": func(w dns.ResponseWriter, q *dns.Msg) {
		asked <- q.Question[0].Name
		has("api.example. 5 A 198.51.100.1")(w, q)
	}, "localhost.": func(w dns.ResponseWriter, q *dns.Msg) {
		t.Error("a question for a name that is on no list has left the node")
		has()(w, q)
	}}.serve(t, out, netlab.OutsideIPv4)
	host.MustRun(t, "mkdir", "-p", "/etc/cni/net.d")
	host.Feed(t, listed(1, `"allow": ["10.70.1.0/24", "fd00:70:1::/64", "api.example:443"]`), "tee", "/etc/cni/net.d/10-net1.conflist")
	patience := []string{"--timeout", netlab.Patience.String()}
	is := func(want string, flags ...string) {
		t.Helper()
		if got := probeNames(t, host, flags...); !strings.HasPrefix(got, "names, by 10.70.1.1: "+want) {
			t.Errorf("probe %v: %q, want %q", flags, got, want)
		}
	}
	is("failed no agent answers: containers reach nothing by the names on their lists systemctl enable --now cnibox-agent")
	said := make(chan string)
	go func() { said <- probeNames(t, host, patience...) }()
	netlab.Until(t, "the probe to attach a container", func() bool { return host.MustRun(t, "ls", "/run/cnibox/names") != "" })
	a := start(t, host, "--dns")
	if got := <-said; !strings.HasPrefix(got, "names, by 10.70.1.1: ok") {
		t.Errorf("the agent came while the probe asked: %q", got)
	}
	is("ok", patience...)
	if len(asked) > 0 {
		t.Errorf("the node's server was asked for %s", <-asked)
	}
	is("ok", append(patience, "--name", "api.example")...)
	if len(asked) == 0 {
		t.Error("the node's server was not asked for the name of --name")
	}
	is("failed 10.70.1.1:53 answers that it can't resolve other.example", append(patience, "--name", "other.example")...)
	a.kill()
	var conn net.PacketConn
	var err error
	host.Do(func() { conn, err = net.ListenPacket("udp", ":305") })
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(has())}
	go func() { _ = server.ActivateAndServe() }()
	defer conn.Close()
	is("failed another DNS server than the agent answers at 10.70.1.1:53", patience...)
}
