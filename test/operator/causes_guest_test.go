package operator

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// Scripts that set the limit of tracked connections: to half of those that are held, to more than the node has when a container holds as many, and to what is
// usual.
const (
	few   = "sysctl -qw net.netfilter.nf_conntrack_max=50; "
	some  = "sysctl -qw net.netfilter.nf_conntrack_max=80; "
	usual = "sysctl -qw net.netfilter.nf_conntrack_max=65536; "

	tracks = `sysctl -qw net.bridge.bridge-nf-call-iptables=0; inside web 'nft add table inet own; nft add chain inet own i "{ type filter hook input priority 0; }"; nft add rule inet own i ct state new accept'; `
)

// crowded are causes that a limit makes which all network namespaces share.
var crowded = []cause{
	{name: "a container's own connections", start: tracking, plant: some, trace: beside, code: "conntrack-full", says: "the table of connections of web is full",
		undo: "inside web nft delete table inet own; sysctl -qw net.bridge.bridge-nf-call-iptables=1; " + usual},
	{name: "connections, a published port", start: crowding, plant: few, trace: published, code: "conntrack-full", says: "nf_conntrack: table full", undo: usual},
	{name: "connections, outwards", start: crowding, plant: few, trace: outwards, code: "conntrack-full", says: "the node's own table of connections is full", undo: usual},
	{name: "connections, IPv6", start: crowding, plant: few, trace: "web --to 2001:db8:2::254", code: "conntrack-full", undo: usual},
	{name: "connections, from the node", start: crowding, plant: few, trace: "--from node --to web:80", code: "conntrack-full", undo: usual},
	{name: "connections, for the node", start: crowding, plant: few, trace: "box --to 10.88.0.1", code: "conntrack-full", undo: usual},
}

// crowd is how many connections are held.
const crowd = 100

// crowding has somebody outside hold connections to a container.
func crowding(t *testing.T, f *field) (stop func()) {
	stop = hold(t, &f.outside.Namespace, netlab.HostIPv4+":8080")
	f.forget(t)
	return stop
}

// tracking has one container hold connections to another that tracks them, on a bridge that does not.
func tracking(t *testing.T, f *field) (stop func()) {
	f.run(t, tracks)
	return hold(t, &f.pods["other"].Namespace, "10.88.0.2:80")
}

func hold(t *testing.T, from *netlab.Namespace, to string) (stop func()) {
	t.Helper()
	var all []net.Conn
	for range crowd {
		conn, err := from.DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	return func() {
		for _, conn := range all {
			_ = conn.Close()
		}
	}
}

// others are the connections that the kernel may drop for a new one: all that are not established.
type others struct{}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (others) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	const established = 3 // TCP_CONNTRACK_ESTABLISHED
	tcp, is := flow.ProtoInfo.(*netlink.ProtoInfoTCP)
	return !is || tcp.State != established
}

// forget has the node forget them.
func (f *field) forget(t *testing.T) {
	t.Helper()
	f.host.Do(func() {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, others{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestCausesOfLimits plants causes that only a machine of its own can have.
func TestCausesOfLimits(t *testing.T) {
	host, outside := furnish(t, netlab.NewGuestHost(t))
	f := fieldOn(t, host, outside)
	for _, c := range crowded {
		t.Run(c.name, func(t *testing.T) { f.try(t, c) })
	}
	t.Run("doctor and probe", func(t *testing.T) { f.tryCrowded(t) })
}

// tryCrowded has doctor and probe look at a node without room for another connection. What they say is to be done is done as it is printed.
func (f *field) tryCrowded(t *testing.T) {
	defer crowding(t, f)()
	const full = "nf_conntrack: table full"
	for _, by := range []struct {
		name    string
		remedy  func() string
		isSound func() bool
	}{
		{"doctor", func() string { return f.remedyOf(t, "packet-lost", full) }, func() bool { return len(f.lost(t)) == 0 }},
		{"doctor, of the table", func() string { return f.remedyOf(t, "connections-nearly-full", "net.netfilter.nf_conntrack_max is") },
			func() bool { return len(f.doctor(t, "connections-nearly-full").Findings) == 0 }},
		{"probe", func() string {
			_, printed := f.cnictl("probe", "demo", "--to", netlab.OutsideIPv4, "--timeout", silence.String())
			t.Logf("%s", printed)
			_, after, is := strings.Cut(printed, full)
			if !is {
				t.Errorf("probe does not say %q", full)
			}
			_, after, _ = strings.Cut(after, "sysctl -w ")
			word, _, _ := strings.Cut(after, "\n")
			return "sysctl -w " + word
		}, func() bool {
			code, printed := f.cnictl(append([]string{"probe", "demo", "--to", netlab.OutsideIPv4}, patience...)...)
			return code == 0 && !strings.Contains(printed, full)
		}},
	} {
		f.forget(t)
		f.run(t, few)
		remedy := by.remedy()
		t.Logf("%s: %s", by.name, remedy)
		f.run(t, remedy)
		if !by.isSound() {
			t.Errorf("%s: the remedy does not help", by.name)
		}
		f.run(t, usual)
	}
}

// remedyOf is the remedy of what doctor finds of a kind, which has to say something.
func (f *field) remedyOf(t *testing.T, code, says string) string {
	t.Helper()
	found := f.doctor(t, code).Findings
	if len(found) == 0 || !strings.Contains(found[0].Summary, says) {
		t.Fatalf("%s: %+v, want one that says %q", code, found, says)
	}
	t.Logf("%s: %s", found[0].Code, found[0].Summary)
	return found[0].Remedy
}
