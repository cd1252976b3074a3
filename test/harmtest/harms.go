package harmtest

import "strings"

// Harms are what repair mends whole: afterwards all is as before.
var Harms = []Harm{
	{Name: "nftables are flushed", Network: Usual, Host: "nft flush ruleset", Finds: "table inet cnibox"},
	{Name: "the table is deleted", Network: Usual, Host: "nft delete table inet cnibox", Finds: "table inet cnibox"},
	{Name: "the table is dormant", Network: Usual, Host: "nft 'add table inet cnibox { flags dormant; }'", Finds: "dormant", Silent: true},
	{Name: "the chains are flushed", Network: Usual, Host: "nft flush table inet cnibox", Finds: "table inet cnibox"},
	{Name: "elements are deleted", Network: Usual, Host: "nft flush set inet cnibox masq_v1_10.88.0.0/24; nft flush map inet cnibox ports4_v1", Finds: "10.88.0.2"},
	{Name: "owners are deleted", Network: Usual, Host: "nft flush map inet cnibox owners_v1", Finds: "holds []"},
	{Name: "route_localnet is off", Network: Usual, Host: "echo 0 >/proc/sys/net/ipv4/conf/demo0/route_localnet", Finds: "route_localnet", Silent: true},
	{Name: "rules of ports with conditions", Network: strings.Replace(Usual, `"portmap"`, `"portmap", "conditionsV4": ["ip", "saddr", "192.0.2.0/24"]`, 1),
		Host: "nft flush chain inet cnibox options_v1", Finds: "of its own"},
	{Name: "ports with conditions", Network: strings.Replace(Usual, `"portmap"`, `"portmap", "conditionsV4": ["ip", "saddr", "192.0.2.0/24"]`, 1),
		Host: "nft flush ruleset", Finds: "table inet cnibox"},
	{Name: "iptables are flushed", Network: Old, Host: "iptables -t nat -F; ip6tables -t nat -F", Finds: "lacks the rule"},
	{Name: "iptables are deleted", Network: Old, Host: "nft flush ruleset", Finds: "lacks the rule"},
	{Name: "the jump to the ports is deleted", Network: Old, Host: "iptables -t nat -D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT", Finds: "PREROUTING"},
	{Name: "the guard of localhost is deleted", Network: Old, Host: "iptables -t raw -F", Finds: "127.0.0.1"},

	{Name: "addresses of the container", Network: Usual, Inside: "ip address flush dev eth0", Finds: "lacks the address"},
	{Name: "routes of the container", Network: Usual, Inside: "ip route flush table main; ip -6 route flush table main", Finds: "lacks the route"},
	{Name: "the interface was down", Network: Usual, Inside: "ip link set eth0 down; ip link set eth0 up", Finds: "lacks the route"},
	{Name: "the interface is down", Network: Usual, Inside: "ip link set eth0 down", Finds: "is down"},
	{Name: "the interface's MAC address", Network: Usual, Inside: "ip link set eth0 address 02:66:66:66:66:66", Finds: "MAC address", Silent: true},
	{Name: "the host end's MAC address", Network: Usual, Host: "ip link set END address 02:66:66:66:66:66", Finds: "MAC address", Silent: true},
	{Name: "the host end is down", Network: Usual, Host: "ip link set END down", Finds: "is down"},
	{Name: "leases", Network: Usual, Host: "rm /var/lib/cni/networks/demo/10.88.0.2 /var/lib/cni/networks/demo/fd00*2", Finds: "is not held", Silent: true},

	{Name: "a port out of the bridge", Network: Usual, Host: "ip link set END nomaster", Finds: "is not in bridge demo0"},
	{Name: "a port in another bridge", Network: Usual, Prepare: "ip link add other0 address 02:00:00:00:00:07 type bridge", Host: "ip link set END master other0", Finds: "is not in bridge demo0"},
	{Name: "options of the port", Network: With(`"hairpinMode": true, "portIsolation": true, "macspoofchk": true`),
		Host: "ip link set END nomaster; nft flush table bridge cnibox", Finds: "is not in bridge demo0"},
	{Name: "hairpin mode that nobody wants", Network: Usual, Host: "bridge link set dev END hairpin on", Finds: "hairpin_mode", Silent: true},
	{Name: "the bridge is down", Network: Usual, Host: "ip link set demo0 down", Finds: "demo0 is down"},
	{Name: "the bridge is deleted", Network: Usual, Host: "ip link del demo0", Finds: "demo0 is not there"},
	{Name: "promiscMode", Network: With(`"promiscMode": true`), Host: "ip link set demo0 promisc off", Finds: "promiscuous", Silent: true},
	{Name: "the gateway's addresses", Network: Usual, Host: "ip address flush dev demo0", Finds: "lacks the gateway's address"},
	{Name: "forwarding", Network: Usual, Host: "echo 0 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv6/conf/all/forwarding", Finds: "ip_forward"},
	{Name: "all of it", Network: Usual, Host: "nft flush ruleset; ip link del demo0; echo 0 >/proc/sys/net/ipv4/ip_forward; rm /var/lib/cni/networks/demo/10*",
		Inside: "ip address flush dev eth0; ip link set eth0 down", Finds: "is not held"},

	{Name: "ptp: addresses of the host end", Network: Ptp, Host: "ip address flush dev END", Finds: "lacks the gateway's address"},
	{Name: "ptp: the route to the container", Network: Ptp, Host: "ip route del ADDRESS; ip -6 route del fd00:88::2 dev END", Finds: "does not route"},
	{Name: "ptp: the host end is down", Network: Ptp, Host: "ip link set END down", Finds: "is down"},
	{Name: "ptp: addresses of the container", Network: Ptp, Inside: "ip address flush dev eth0", Finds: "lacks the address"},
	{Name: "ptp: routes of the container", Network: Ptp, Inside: "ip route flush table main; ip -6 route flush table main", Finds: "lacks the route"},
	{Name: "ptp: masquerading", Network: Ptp, Host: "nft flush ruleset", Finds: "table inet cnibox"},

	{Name: "firewall: nftables", Network: Guarded("nftables"), Prepare: DropForwarded, Host: "nft delete table inet cnibox-forward", Finds: "table inet cnibox-forward"},
	{Name: "firewall: what accepts marked packets", Network: Guarded("nftables"), Prepare: DropForwarded, Host: "iptables -F; ip6tables -F", Finds: "CNIBOX-FORWARD"},
	{Name: "firewall: iptables", Network: Guarded("iptables"), Prepare: DropForwarded + "; iptables -N CNI-ADMIN; iptables -A CNI-ADMIN -d 10.88.0.0/24 -j ACCEPT", Host: "iptables -F CNI-FORWARD; iptables -F FORWARD", Finds: "lacks the rule"},
	{Name: "firewall: policy", Network: Usual + `, {"type": "firewall", "ingressPolicy": "isolated"}`, Prepare: DropForwarded,
		Host: "nft delete table inet cnibox-forward; bridge link set dev END isolated off", Finds: "table inet cnibox-forward"},

	{Name: "bandwidth: what the host end sends", Network: Limited, Host: "tc qdisc del dev END root", Finds: "nothing limits"},
	{Name: "bandwidth: another limit", Network: Limited, Host: "tc qdisc replace dev END root handle 1: tbf rate 8mbit burst 100k latency 1s", Finds: "bytes a second", Silent: true},
	{Name: "bandwidth: what the host end receives", Network: Limited, Host: "tc qdisc del dev END ingress", Finds: "is not sent through"},
	{Name: "bandwidth: the filter", Network: Limited, Host: "tc filter del dev END ingress", Finds: "is not sent through"},
	{Name: "bandwidth: the ifb's limit", Network: Limited, Host: "tc qdisc del dev IFB root", Finds: "nothing limits"},
	{Name: "bandwidth: the ifb is down", Network: Limited, Host: "ip link set IFB down", Finds: "is down"},
	{Name: "bandwidth: the ifb is deleted", Network: Limited, Host: "ip link del IFB", Finds: "is not sent through"},
	{Name: "bandwidth: the port out of the bridge, and all qdiscs", Network: Limited, Host: "ip link set END nomaster; tc qdisc del dev END root; tc qdisc del dev END ingress", Finds: "nothing limits"},

	{Name: "tuning", Network: Tuned, Inside: "ip link set eth0 mtu 1500 txqueuelen 100 allmulticast off; echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_filter", Silent: true, Finds: "arp_filter"},

	{Name: "sbr: rules", Network: Sourced, Inside: "ip rule del from ADDRESS; ip -6 rule del from fd00:88::2", Finds: "no rule leads"},
	{Name: "sbr: tables", Network: Sourced, Inside: `for t in $(ip rule | sed -n "s/.*from ADDRESS lookup \\([0-9]*\\).*/\\1/p"); do ip route flush table $t; done`, Finds: "lacks the route"},
	{Name: "sbr: the main table", Network: Sourced, Inside: "ip route flush table main", Finds: "the main table has no route"},
	{Name: "sbr: addresses", Network: Sourced, Inside: "ip address flush dev eth0", Finds: "lacks the address"},

	{Name: "chain", Network: `{"type": "chain", "capabilities": {"portMappings": true}, "plugins": [` + Tuned + `]}`, Host: "nft flush ruleset; ip link set END nomaster",
		Inside: "ip address flush dev eth0; ip link set eth0 mtu 1500", Finds: "chain: bridge: "},
	{Name: "flannel", Network: `{"type": "flannel", "delegate": {"bridge": "demo0", "isDefaultGateway": true}},` + Ports,
		Prepare: `mkdir /run/flannel; printf 'FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_SUBNET=10.88.0.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n' >/run/flannel/subnet.env`,
		Host:    "nft flush ruleset; ip link set END nomaster", Inside: "ip address flush dev eth0", Finds: "flannel"},
}
