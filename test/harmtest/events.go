package harmtest

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// Event is a harm that is done to a node with many containers.
type Event struct {
	Harm
	Firewalld string // its backend, if it runs
	HitsOne   bool   // and not all
	AtOnce    bool   // many commands that the agent is to see as one: taken one by one, they are a fight with somebody
	Shows     string // a script that prints what is hit: on the host, or in the container if it is there that something is done
}

// What Events show, without counters.
const (
	nftables = `nft list ruleset | grep -v 'counter packets'`
	iptables = `for f in iptables ip6tables; do $f-save | sed 's/\[.*\]//; /^#/d'; done`
	zone     = "firewall-cmd --get-active-zones"
	inside   = "ip -o address show dev eth0; ip route; ip -6 route"
	port     = "ip -o link show END | grep -o 'master [^ ]*'"
	qdisc    = "tc qdisc show dev END; tc filter show dev END ingress"
)

// completeReload is what firewall-cmd --complete-reload asks for, which gives up after 25 seconds.
const completeReload = "dbus-send --system --print-reply --reply-timeout=600000 --dest=org.fedoraproject.FirewallD1 /org/fedoraproject/FirewallD1 org.fedoraproject.FirewallD1.completeReload"

// Events are what happens to nodes.
var Events = []Event{
	{Harm: Harm{Name: "nft flush ruleset", Network: Limited, Host: "nft flush ruleset"}, Shows: nftables},
	{Harm: Harm{Name: "iptables -F -t nat", Network: Old, Host: "iptables -F -t nat"}, Shows: iptables},
	{Harm: Harm{Name: "firewall-cmd --complete-reload, nftables", Network: Guarded("firewalld"), Host: completeReload}, Firewalld: "nftables", Shows: nftables + "; " + zone},
	{Harm: Harm{Name: "firewall-cmd --complete-reload, iptables", Network: Old + `, {"type": "firewall"}`, Host: completeReload}, Firewalld: "iptables", Shows: iptables + "; " + zone},
	{Harm: Harm{Name: "gateway's address deleted", Network: Usual, Host: "ip address flush dev demo0"}, Shows: "ip -o address show dev demo0; ip -6 route show dev demo0 proto kernel"},
	{Harm: Harm{Name: "ip addr flush in a container", Network: Usual, Inside: "ip address flush dev eth0"}, HitsOne: true, Shows: inside},
	{Harm: Harm{Name: "ip route flush in a container", Network: Usual, Inside: "ip route flush table main; ip -6 route flush table main"}, HitsOne: true, Shows: inside},
	{Harm: Harm{Name: "port taken from the bridge", Network: Usual, Host: "ip link set END nomaster"}, HitsOne: true, Shows: port},
	{Harm: Harm{Name: "qdisc deleted", Network: Limited, Host: "tc qdisc del dev END root; tc qdisc del dev END ingress"}, HitsOne: true, Shows: qdisc},
	{Harm: Harm{Name: "route of ptp deleted", Network: Ptp, Host: "ip route del ADDRESS"}, HitsOne: true, Shows: "ip route show dev END"},
	{Harm: Harm{Name: "all of it at once", Network: Limited, Host: "ip address flush dev demo0; ip link set END nomaster; tc qdisc del dev END root; tc qdisc del dev END ingress; nft flush ruleset",
		Inside: "ip address flush dev eth0; ip route flush table main; ip -6 route flush table main"}, AtOnce: true, Shows: nftables + "; ip -o address show dev demo0; " + port + "; " + qdisc},
}

// Look returns what is there of what the event hits, in no order that the kernel chooses, and without what it makes by itself.
func (e Event) Look(t testing.TB, host *netlab.Host, c *Container) string {
	t.Helper()
	in, script := &host.Namespace, c.names().Replace(e.Shows)
	if e.Host == "" {
		in = &c.Namespace
	}
	printed, _ := in.Output(in.Command("sh", "-c", script)) // what is gone can't be shown
	var words []string
	for line := range strings.Lines(printed) {
		if !strings.Contains(line, "fe80:") {
			words = append(words, strings.FieldsFunc(line, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })...)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// Begin readies the host.
func (e Event) Begin(t testing.TB, host *netlab.Host) {
	t.Helper()
	if e.Firewalld == "" {
		return
	}
	firewalldtest.Start(t, host, e.Firewalld)
	// What comes from outside is to be forwarded, as the zone of containers lets all pass.
	const trust = "firewall-cmd --zone=trusted --add-interface=" + netlab.UplinkName
	Script(t, &host.Namespace, trust+"; "+trust+" --permanent")
}
