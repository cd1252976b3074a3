package harmtest

import (
	"testing"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// Event is a harm that is done to a node with many containers.
type Event struct {
	Harm
	Firewalld string // its backend, if it runs
	HitsOne   bool   // and not all
}

// Events are what happens to nodes.
var Events = []Event{
	{Harm: Harm{Name: "nft flush ruleset", Network: Limited, Host: "nft flush ruleset"}},
	{Harm: Harm{Name: "iptables -F -t nat", Network: Old, Host: "iptables -F -t nat"}},
	{Harm: Harm{Name: "firewall-cmd --complete-reload, nftables", Network: Guarded("firewalld"), Host: "firewall-cmd --complete-reload"}, Firewalld: "nftables"},
	{Harm: Harm{Name: "firewall-cmd --complete-reload, iptables", Network: Old + `, {"type": "firewall"}`, Host: "firewall-cmd --complete-reload"}, Firewalld: "iptables"},
	{Harm: Harm{Name: "gateway's address deleted", Network: Usual, Host: "ip address flush dev demo0"}},
	{Harm: Harm{Name: "ip addr flush in a container", Network: Usual, Inside: "ip address flush dev eth0"}, HitsOne: true},
	{Harm: Harm{Name: "ip route flush in a container", Network: Usual, Inside: "ip route flush table main; ip -6 route flush table main"}, HitsOne: true},
	{Harm: Harm{Name: "port taken from the bridge", Network: Usual, Host: "ip link set END nomaster"}, HitsOne: true},
	{Harm: Harm{Name: "qdisc deleted", Network: Limited, Host: "tc qdisc del dev END root; tc qdisc del dev END ingress"}, HitsOne: true},
	{Harm: Harm{Name: "route of ptp deleted", Network: Ptp, Host: "ip route del ADDRESS"}, HitsOne: true},
}

// Begin readies the host.
func (e Event) Begin(t testing.TB, host *netlab.Host) {
	t.Helper()
	if e.Firewalld == "" {
		return
	}
	firewalldtest.Start(t, host, e.Firewalld)
	// What comes from outside is to be forwarded, as the zone of containers lets all pass.
	const zone = "firewall-cmd --zone=trusted --add-interface=" + netlab.UplinkName
	Script(t, &host.Namespace, zone+"; "+zone+" --permanent")
}
