package trace

import (
	"fmt"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// Kind is a kind of causes.
type Kind struct {
	*finding.Code
	Symptom Symptom // under which people look for it
}

// Symptom is what people see who ask why a packet is dropped.
type Symptom string

// The symptoms, in the order of the manual.
const (
	AtOnce    Symptom = "The sender is told at once: unreachable, not permitted, refused"
	Outwards  Symptom = "A container reaches nothing, or not all: it waits, and nothing comes"
	Published Symptom = "A published port does not answer"
	Beside    Symptom = "Two containers don't reach each other"
	Larger    Symptom = "Small packets pass, and large ones don't"
)

// Symptoms returns all of them.
func Symptoms() []Symptom { return []Symptom{AtOnce, Outwards, Published, Beside, Larger} }

// kinds are all kinds of causes.
var kinds kindList

type kindList []Kind

// Kinds returns all kinds of causes.
func Kinds() []Kind { return kinds }

// Codes are those of all kinds.
func Codes() (codes finding.Codes) {
	for _, k := range kinds {
		codes = append(codes, k.Code)
	}
	return codes
}

func (l *kindList) declare(s Symptom, name, meaning, remedy string) Kind {
	k := Kind{&finding.Code{Name: name, Severity: finding.Error, Meaning: meaning, Remedy: remedy}, s}
	*l = append(*l, k)
	return k
}

// cause is a cause of the kind.
func (k Kind) cause(whose Owner, remedy finding.Remedy, format string, args ...any) *Cause {
	return &Cause{k.Found(remedy, "%s", fmt.Sprintf(format, args...)), whose}
}

var (
	guestDrops = kinds.declare(AtOnce, "container-drops", "A rule inside of the container's own network namespace drops the packet, such as of a service mesh or a firewall that the container runs.",
		"Change it in the container, or in what starts it: the host changes nothing there.")
	noRoute = kinds.declare(AtOnce, "no-route", "The container has no route to the address.", "`isDefaultGateway` in the network, or `routes` of its `ipam`")
	refused = kinds.declare(AtOnce, "nobody-listens", "The packet has arrived, and nobody listens at that port.", "Start the program, and let it listen at all addresses rather than at 127.0.0.1.")
	notSent = kinds.declare(AtOnce, "not-sent", "The sender's own kernel did not send the packet.", "See what the kernel says.")
	told    = kinds.declare(AtOnce, "unreachable", "A router on the way says that the packet can't be delivered.", "Ask who runs that router.")

	ruleDrops    = kinds.declare(Outwards, "rule-drops", "A rule of the packet filter drops the packet.", "Put a rule before it that accepts these packets, or ask its owner. A drop is final: no other table can take it back.")
	policyDrops  = kinds.declare(Outwards, "policy-drops", "No rule of a chain accepts the packet, and the chain's policy is drop.", "`iptables -I DOCKER-USER …`, `ufw route allow …`, `nft insert rule …`, or the plugin `firewall`")
	legacyDrops  = kinds.declare(Outwards, "legacy-drops", "A rule of iptables-legacy drops the packet. It counts what it drops, and is found by that.", "`iptables-legacy -I …`")
	listCloses   = kinds.declare(Outwards, "list-closes", "The network's own list (plugin `egress`) does not contain the destination.", "Add it to `allow` in the network, and start the container again.")
	senderForged = kinds.declare(Outwards, "sender-is-another", "The packet's source address or link address is not the container's own.", "Send from the address that the network has given; `spoofchk` and `egress` check that.")
	hookDrops    = kinds.declare(Outwards, "hook-drops", "The packet was lost among the hooks of the packet filter, and no rule of nf_tables or iptables-legacy says so: a BPF program, SELinux, or a module.", "See `bpftool net` and the kernel's log.")
	forwardOff   = kinds.declare(Outwards, "forwarding-is-off", "The host forwards no packets.", "`sysctl -w net.ipv4.ip_forward=1`")
	routeStops   = kinds.declare(Outwards, "route-stops", "A policy rule or a route of the host leads the packet nowhere: blackhole, unreachable, prohibit.", "`ip rule`, `ip route show table all`")
	hostNoRoute  = kinds.declare(Outwards, "host-has-no-route", "The host has no route to the address.", "`ip route add default via …`")
	reversePath  = kinds.declare(Outwards, "reverse-path", "The host drops the packet, since its way back does not lead by the link by which it came (rp_filter).", "`sysctl -w net.ipv4.conf.LINK.rp_filter=2`")
	trackerFull  = kinds.declare(Outwards, "conntrack-full", "The table of connections is full: the kernel drops what begins another one.", "`sysctl -w net.netfilter.nf_conntrack_max=…`")
	untracked    = kinds.declare(Outwards, "untracked", "A rule (notrack) takes the packet out of connection tracking: it is neither masqueraded nor led to a container.", "Leave these packets out of that rule.")
	notMasked    = kinds.declare(Outwards, "not-masqueraded", "The packet left the node with the container's own address, to which others know no way back.", "`\"ipMasq\": true`, `cnictl repair`, or a route on the other side")
	nobodyHas    = kinds.declare(Outwards, "nobody-has-the-address", "Nobody on the link says that the next address is his.", "Correct the address or the gateway; `cnictl repair` puts gateways back.")
	linkDown     = kinds.declare(Outwards, "link-down", "A link on the way is down, or gone.", "`ip link set LINK up`, `cnictl repair`")
	leftNode     = kinds.declare(Outwards, "no-answer-from-outside", "The packet left the node as it should, and nothing came back: it was lost elsewhere.", "Look at the other side, and at routers between.")
	waits        = kinds.declare(Outwards, "waits-for-a-program", "A rule hands the packet to a program (nfqueue), which does not give it back.", "Start the program, or add `bypass` to the rule.")

	notPublished = kinds.declare(Published, "not-published", "No rule leads the port to a container: the port map is gone, or was never made.", "`cnictl repair NETWORK`")
	dormant      = kinds.declare(Published, "table-dormant", "The table of cnibox is there, and switched off (dormant).", "`nft add table inet cnibox`")
	elsewhere    = kinds.declare(Published, "led-elsewhere", "A rule leads the port to another address than the container's.", "Publish it at another port, or take the other one away.")
	noWayBack    = kinds.declare(Published, "no-way-back", "The packet has arrived in the container, which has no route back to the sender.", "`isDefaultGateway`, `routes`, or `portmap` with `\"snat\": true`")
	silent       = kinds.declare(Published, "no-answer", "The packet has come to the program's socket, and nothing was answered.", "Look at the program: its queue of connections may be full.")
	localnetOff  = kinds.declare(Published, "route-localnet", "The kernel sends nothing from 127.0.0.1 by another link unless route_localnet is set.", "`cnictl repair NETWORK`")
	hairpinOff   = kinds.declare(Published, "hairpin-off", "The bridge sends nothing back by the port by which it came.", "`\"hairpinMode\": true`")

	notAPort = kinds.declare(Beside, "not-a-port", "The container's host end is not a port of the network's bridge.", "`cnictl repair NETWORK`")
	isolated = kinds.declare(Beside, "isolated", "Both containers are isolated ports of the bridge, which keeps such apart.", "`portIsolation` in the network")
	blocked  = kinds.declare(Beside, "port-blocked", "The bridge does not forward by this port yet, or not at all: spanning tree, or a VLAN.", "`bridge link`, `bridge vlan`")
	pastHost = kinds.declare(Beside, "answer-past-the-host", "A rule of the host leads the packet to a neighbour on the sender's own bridge, and the answer goes there directly: nobody changes its address back, and the sender does not take it.",
		"`sysctl -w net.bridge.bridge-nf-call-iptables=1`, or masquerade these packets")

	tooLarge = kinds.declare(Larger, "too-large", "The packet is larger than a link on its way takes, and may not be fragmented.", "`\"mtu\"` in the network")
)
