package trace

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// TestAcceptAll lets pass all that a network's containers send. No program reads names that it would take for something else.
func TestAcceptAll(t *testing.T) {
	from := netip.MustParsePrefix("10.88.0.2/24")
	r := &run{Request: Request{Imitated: true, Source: &Container{Attachments: []*node.Attachment{{Network: "demo", Addresses: []netip.Prefix{from}}}}}, flow: Flow{From: from.Addr()}}
	at := &place{name: "host"}
	drop := stage{at: at, hook: "forward", Event: Event{Family: "inet", Table: "own", Chain: "forward", Packet: Header{From: from.Addr(), To: netip.MustParseAddr("203.0.113.99")}}}
	const plugin = "\n" + `# for good: add {"type": "firewall"} to the plugins of network demo, and start its containers again`
	const subnet = "nft insert rule inet own forward ip saddr 10.88.0.0/24 accept\n" +
		"nft insert rule inet own forward ip daddr 10.88.0.0/24 ct state established,related accept\n" +
		"nft insert rule inet own forward ip daddr 10.88.0.0/24 ct status dnat accept" + plugin
	for bridge, want := range map[string]string{
		"": subnet, "a;flush": subnet, "-a": subnet, "a}": subnet, `a"`: subnet, "$a": subnet,
		"demo0": "nft insert rule inet own forward iifname demo0 accept\n" +
			"nft insert rule inet own forward oifname demo0 ct state established,related accept\n" +
			"nft insert rule inet own forward oifname demo0 ct status dnat accept" + plugin,
	} {
		if r.from.bridge = nil; bridge != "" {
			r.from.bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
		}
		if got := r.accept(drop, Administrator).String(); got != want {
			t.Errorf("bridge %q: got\n%s\nwant\n%s", bridge, got, want)
		}
	}
	for owner, want := range map[Owner]string{
		Docker:    "iptables -I DOCKER-USER -s 10.88.0.0/24 -j ACCEPT\niptables -I DOCKER-USER -d 10.88.0.0/24 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT" + plugin,
		UFW:       "ufw route allow from 10.88.0.0/24\nufw route allow to 10.88.0.0/24" + plugin,
		Firewalld: "firewall-cmd --zone=trusted --change-source=10.88.0.0/24\nfirewall-cmd --permanent --zone=trusted --change-source=10.88.0.0/24" + plugin,
	} {
		r.from.bridge = nil
		if got := r.accept(drop, owner).String(); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", owner, got, want)
		}
	}
	drop.hook, drop.Family, drop.Table, drop.Chain = "prerouting", "ip", "raw", "PREROUTING"
	if got, want := r.accept(drop, Administrator).String(), "iptables -t raw -I PREROUTING -s 10.88.0.0/24 -j ACCEPT"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
