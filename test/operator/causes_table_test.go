package operator

// Rules of others, as they write them.
const (
	docker = `restore <<-END
		*filter
		:FORWARD DROP [0:0]
		:DOCKER - [0:0]
		:DOCKER-BRIDGE - [0:0]
		:DOCKER-CT - [0:0]
		:DOCKER-FORWARD - [0:0]
		:DOCKER-INTERNAL - [0:0]
		:DOCKER-USER - [0:0]
		-A FORWARD -j DOCKER-USER
		-A FORWARD -j DOCKER-FORWARD
		-A DOCKER ! -i docker0 -o docker0 -j DROP
		-A DOCKER-BRIDGE -o docker0 -j DOCKER
		-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		-A DOCKER-FORWARD -j DOCKER-CT
		-A DOCKER-FORWARD -j DOCKER-INTERNAL
		-A DOCKER-FORWARD -j DOCKER-BRIDGE
		-A DOCKER-FORWARD -i docker0 -j ACCEPT
		COMMIT
	END
	`
	kubeProxy = `restore <<-END
		*filter
		:KUBE-EXTERNAL-SERVICES - [0:0]
		:KUBE-FIREWALL - [0:0]
		:KUBE-FORWARD - [0:0]
		:KUBE-NODEPORTS - [0:0]
		:KUBE-PROXY-FIREWALL - [0:0]
		:KUBE-SERVICES - [0:0]
		-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
		-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
		-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
		-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
		-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
		-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
		-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
		-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
		-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
		-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
		-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		-A KUBE-SERVICES -d 10.96.0.99/32 -p tcp -m comment --comment "default/gone has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
		COMMIT
	END
	`
	// kubeProxyNFT is kube-proxy of Kubernetes 1.31 and later in its mode nftables.
	kubeProxyNFT = `nft -f - <<-END
		table ip kube-proxy {
			map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.99 . tcp . 80 : goto reject-chain } }
			chain reject-chain { reject; }
			chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
			chain filter-forward { type filter hook forward priority -110; ct state new jump service-endpoints-check; }
			chain filter-output { type filter hook output priority -110; ct state new jump service-endpoints-check; }
		}
	END
	`
	// ufw keeps its rules in files of its own, and says there that it is on.
	ufwOn  = `cp -a /etc/ufw /run/ufw; cp /etc/default/ufw /run/ufw/default; mount -n --bind /run/ufw /etc/ufw; mount -n --bind /run/ufw/default /etc/default/ufw; `
	ufw    = ufwOn + `ufw --force enable >/run/ufw.log 2>&1`
	ufwOff = `ufw --force disable >/run/ufw.log 2>&1; no_iptables; umount -n /etc/default/ufw /etc/ufw; rm -r /run/ufw`
)

const (
	outwards  = "web --to 192.0.2.254"
	published = "--to 8080"
	beside    = "other --to web:80"
)

var causes = []cause{
	{name: "the network's policy", plant: ":", trace: "bare --to app:80", code: "rule-drops", whose: "cnibox", undo: ":", more: "app2 --to app:80"},
	{name: "a rule", plant: "rule forward ip saddr 10.88.0.0/24 icmp type echo-request counter drop", trace: outwards, code: "rule-drops", says: "rule 2 in chain f of table inet mine drops it: ip saddr 10.88.0.0/24 icmp type echo-request drop"},
	{name: "a set", plant: "rule forward counter; nft add set inet mine bad '{ type ipv4_addr; elements = { 192.0.2.254 }; }'; nft add rule inet mine f ip daddr @bad drop", trace: outwards, code: "rule-drops", says: "ip daddr @bad drop"},
	{name: "a map of verdicts", plant: "rule forward tcp dport vmap '{ 80 : drop, 81 : accept }'", trace: published, code: "rule-drops", says: "vmap"},
	{name: "the state of a connection", plant: "rule forward ct state new iifname uplink0 drop", trace: published, code: "rule-drops", says: "ct state new"},
	{name: "a limit", plant: "rule forward limit rate over 1/day burst 1 packets drop", trace: published, code: "rule-drops", says: "limit rate over 1/day"},
	{name: "a quota", plant: "rule forward quota over 1 bytes drop", trace: outwards, code: "rule-drops", says: "quota"},
	{name: "a chain that others lead to", plant: "rule forward counter; nft add chain inet mine deny; nft add rule inet mine deny reject; nft add rule inet mine f iifname demo0 goto deny", trace: outwards, code: "rule-drops", says: "chain deny of table inet mine"},
	{name: "the answer of a published port", plant: "rule forward tcp sport 80 ct status dnat drop", trace: published, code: "rule-drops", says: "drops the answer"},
	{name: "what is for the node", plant: "rule input iifname demo0 icmp type echo-request drop", trace: "web --to 10.88.0.1", code: "rule-drops"},
	{name: "what the node sends", plant: "rule output oifname demo0 tcp dport 80 reject", trace: "--from node --to web:80", code: "rule-drops", says: "reject"},
	{name: "behind the routes", plant: "rule postrouting oifname uplink0 icmp type echo-request drop", trace: outwards, code: "rule-drops", says: "drops it"},
	{name: "a source without a way back, by a rule", plant: "rule prerouting iifname demo0 fib daddr type unicast ip protocol icmp drop", trace: outwards, code: "rule-drops", says: "fib daddr type unicast"},
	{name: "IPv6", plant: "rule forward icmpv6 type echo-request drop", trace: "web --to 2001:db8:2::254", code: "rule-drops"},
	{name: "a policy of nft", plant: "rule forward counter; nft 'chain inet mine f { policy drop; }'", trace: published, code: "policy-drops", says: "its policy is drop"},
	{name: "the edge", plant: `nft add table netdev edge; nft add chain netdev edge in '{ type filter hook ingress device uplink0 priority 0; }'; nft add rule netdev edge in tcp dport 8080 drop`,
		trace: published, code: "rule-drops", says: "chain in of table netdev edge drops it: tcp dport 8080 drop", undo: "nft delete table netdev edge"},
	{name: "a host end", plant: `nft add table netdev edge; nft add chain netdev edge in "{ type filter hook ingress device $(end box) priority 0; }"; nft add rule netdev edge in ip protocol icmp drop`,
		trace: "box --to 192.0.2.254", code: "rule-drops", undo: "nft delete table netdev edge"},
	{name: "in a bridge", plant: `nft add table bridge mine; nft add chain bridge mine f '{ type filter hook forward priority 0; }'; nft add rule bridge mine f ip protocol tcp drop`,
		trace: beside, code: "rule-drops", says: "table bridge mine", undo: "nft delete table bridge mine"},
	{name: "ARP in a bridge", plant: `nft add table bridge mine; nft add chain bridge mine f '{ type filter hook forward priority 0; }'; nft add rule bridge mine f ether type arp drop; ip neigh flush all; inside other ip neigh flush all`,
		trace: "other --to web", code: "rule-drops", says: "the question who has 10.88.0.2", undo: "nft delete table bridge mine"},

	{name: "iptables", plant: "iptables -A FORWARD -i demo0 -j REJECT", trace: outwards, code: "rule-drops", says: "reject", undo: "no_iptables"},
	{name: "iptables' policy", plant: "iptables -P FORWARD DROP", trace: outwards, code: "policy-drops", says: "chain FORWARD of table ip filter drops it: none of its rules accepts it", undo: "no_iptables"},
	{name: "iptables' table raw", plant: "iptables -t raw -A PREROUTING -p tcp --dport 8080 -j DROP", trace: published, code: "rule-drops", undo: "no_iptables"},
	{name: "iptables' table mangle", plant: "iptables -t mangle -A PREROUTING -i demo0 -j DROP", trace: outwards, code: "rule-drops", undo: "no_iptables"},
	{name: "Docker", plant: docker, trace: outwards, code: "policy-drops", whose: "docker", says: "chain FORWARD", undo: "no_iptables"},
	{name: "Docker, a published port", plant: docker, trace: "--to 8081", code: "policy-drops", whose: "docker", undo: "no_iptables"},
	{name: "Docker's chain for administrators", plant: docker + "iptables -P FORWARD ACCEPT; iptables -A DOCKER-USER -i uplink0 -j DROP", trace: published, code: "rule-drops", undo: "no_iptables"},
	{name: "ufw", plant: ufw, trace: "web --to 192.0.2.254:80", code: "policy-drops", whose: "ufw", undo: ufwOff},
	{name: "ufw, a published port", plant: ufw, trace: published, code: "policy-drops", whose: "ufw", undo: ufwOff},
	{name: "firewalld", start: runFirewalld, plant: ":", trace: outwards, code: "rule-drops", whose: "firewalld", says: "of table inet firewalld drops it: reject", undo: "nft delete table inet firewalld"},
	{name: "kube-proxy", plant: kubeProxy + "iptables -A KUBE-SERVICES -d 192.0.2.254/32 -p icmp -j REJECT", trace: outwards, code: "rule-drops", whose: "kube-proxy", undo: "no_iptables"},
	{name: "kube-proxy by nftables", plant: kubeProxyNFT + "nft add element ip kube-proxy no-endpoint-services '{ 10.88.0.2 . tcp . 80 : goto reject-chain }'", trace: published, code: "rule-drops", whose: "kube-proxy", undo: "nft delete table ip kube-proxy"},
	{name: "iptables-legacy", plant: "iptables-legacy -A FORWARD -p icmp -j DROP", trace: outwards, code: "legacy-drops", says: "a rule in chain FORWARD of table filter of iptables-legacy drops it: -p icmp -j DROP", undo: "iptables-legacy -F"},
	{name: "iptables-legacy's policy", plant: "iptables-legacy -P FORWARD DROP", trace: outwards, code: "legacy-drops", says: "chain FORWARD of iptables-legacy drops it", undo: "iptables-legacy -P FORWARD ACCEPT; iptables-legacy -F"},
	{name: "iptables-legacy, for the node", plant: "iptables-legacy -A INPUT -i demo0 -j DROP", trace: "web --to 10.88.0.1", code: "legacy-drops", undo: "iptables-legacy -F"},
	{name: "Docker by iptables-legacy", plant: "iptables-legacy -N DOCKER-USER; iptables-legacy -A FORWARD -j DOCKER-USER; iptables-legacy -P FORWARD DROP", trace: outwards, code: "legacy-drops", whose: "docker",
		undo: "iptables-legacy -P FORWARD ACCEPT; iptables-legacy -F; iptables-legacy -X"},
	{name: "a queue without a program", plant: "iptables -A FORWARD -i demo0 -j NFQUEUE --queue-num 7", trace: outwards, code: "waits-for-a-program", hand: "iptables -F", undo: "no_iptables"},
	{name: "tc", plant: "ip link add sink up type veth peer name sink1; ip link set sink1 up; tc qdisc add dev uplink0 clsact; tc filter add dev uplink0 ingress protocol ip u32 match ip dport 8080 0xffff action mirred egress redirect dev sink", trace: published, code: "hook-drops", whose: "the kernel",
		says: "the packet was lost at uplink0", undo: "tc qdisc del dev uplink0 clsact; ip link del sink"},

	{name: "notrack", plant: `nft add table ip raw; nft add chain ip raw p '{ type filter hook prerouting priority raw; }'; nft add rule ip raw p tcp dport 8080 notrack`, trace: published, code: "untracked",
		says: "tcp dport 8080 notrack", hand: "nft flush chain ip raw p", undo: "nft delete table ip raw"},
	{name: "notrack of what containers send", plant: `nft add table ip raw; nft add chain ip raw p '{ type filter hook prerouting priority raw; }'; nft add rule ip raw p iifname demo0 notrack`, trace: outwards, code: "untracked",
		says: "chain p of table ip raw takes it out of connection tracking", hand: "nft flush chain ip raw p", undo: "nft delete table ip raw"},
	{name: "notrack of iptables-legacy", plant: "iptables-legacy -t raw -A PREROUTING -i demo0 -j CT --notrack", trace: outwards, code: "untracked", says: "of iptables-legacy takes it out of connection tracking",
		hand: "iptables-legacy -t raw -F", undo: "iptables-legacy -t raw -F"},

	{name: "forwarding", plant: "sysctl -qw net.ipv4.ip_forward=0", trace: outwards, code: "forwarding-is-off", says: "net.ipv4.ip_forward is 0", undo: "sysctl -qw net.ipv4.ip_forward=1"},
	{name: "forwarding of IPv6", plant: "sysctl -qw net.ipv6.conf.all.forwarding=0", trace: "web --to 2001:db8:2::254", code: "forwarding-is-off", undo: "sysctl -qw net.ipv6.conf.all.forwarding=1"},
	{name: "a policy rule", plant: "ip rule add from 10.88.0.0/24 prio 99 blackhole", trace: outwards, code: "route-stops", says: "the policy rule 99: from 10.88.0.0/24 blackhole leads what is for 192.0.2.254 nowhere",
		hand: "ip rule del prio 99", undo: "ip rule del prio 99 2>/dev/null || true"},
	{name: "an unreachable route", plant: "ip route add unreachable 192.0.2.254", trace: outwards, code: "route-stops", says: "the route unreachable 192.0.2.254", hand: "ip route del unreachable 192.0.2.254", undo: ":"},
	{name: "a policy rule to a table without a route", plant: "ip rule add from 10.88.0.0/24 prio 99 lookup 77; ip route add throw default table 77; ip rule add from 10.88.0.0/24 prio 100 unreachable", trace: outwards, code: "route-stops",
		hand: "ip rule del prio 100", undo: "ip rule del prio 99; ip route flush table 77"},
	{name: "no default route", plant: "ip route del default; ip route del 192.0.2.0/24 dev uplink0", trace: outwards, code: "host-has-no-route", hand: "ip route add 192.0.2.0/24 dev uplink0 src 192.0.2.1; ip route add default via 192.0.2.254", undo: ":"},
	{name: "rp_filter", plant: "ip link add second type veth peer name second1; ip address add 198.18.0.1/24 dev second; ip link set second up; ip link set second1 up; sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.second.rp_filter=1",
		trace: "--from 203.0.113.9 --to 8080 --link second", code: "reverse-path", says: "as it comes in by second", undo: "ip link del second; sysctl -qw net.ipv4.conf.all.rp_filter=0", more: published},
	{name: "nobody has the address", plant: ":", trace: "web --to 192.0.2.77", code: "nobody-has-the-address", whose: "somebody outside of this node", says: "nobody beyond uplink0 says that he has 192.0.2.77", undo: ":", more: outwards},
	{name: "the gateway's address", plant: "ip address flush dev demo0; inside web ip neigh flush all", trace: outwards, code: "nobody-has-the-address", says: "who has its gateway 10.88.0.1: the host does not have that address", undo: "cnictl repair demo >/dev/null"},
	{name: "the container's address", plant: "inside web ip address del 10.88.0.2/24 dev eth0; ip neigh flush all", trace: published, code: "nobody-has-the-address", whose: "the container", says: "who has 10.88.0.2",
		hand: "inside web 'ip address add 10.88.0.2/24 dev eth0 || true; ip route replace default via 10.88.0.1'", undo: ":"},
	{name: "a bridge that is down", plant: "ip link set demo0 down", trace: outwards, code: "link-down", says: "demo0 is down", undo: "cnictl repair demo >/dev/null"},
	{name: "a host end that is down", plant: "ip link set $(end web) down", trace: "other --to web", code: "link-down", undo: "ip link set $(end web) up"},
	{name: "a container's link that is down", plant: "inside web ip link set eth0 down", trace: published, code: "link-down", hand: "inside web 'ip link set eth0 up; ip route replace default via 10.88.0.1'", undo: ":"},
	{name: "the uplink is down", plant: "ip link set uplink0 down", trace: "--from 203.0.113.9 --to 192.0.2.1:8080 --link uplink0", code: "link-down", undo: "ip link set uplink0 up; ip route replace default via 192.0.2.254; ip address replace 2001:db8:2::1/64 dev uplink0 nodad; ip route replace default via 2001:db8:2::254"},
	{name: "no port of the bridge", plant: "ip link set $(end web) nomaster; inside web ip neigh flush all", trace: "web --to 10.88.0.1", code: "not-a-port", undo: "ip link set $(end web) master demo0"},
	{name: "isolated ports", plant: "for n in web other; do bridge link set dev $(end $n) isolated on; done", trace: "other --to web", code: "isolated", whose: "cnibox", says: "are isolated ports of demo0",
		hand: "for n in web other; do bridge link set dev $(end $n) isolated off; done", undo: ":"},
	{name: "a blocked port", plant: "bridge link set dev $(end other) state 0", trace: "other --to web", code: "port-blocked", says: "its state is disabled", undo: "bridge link set dev $(end other) state 3"},
	{name: "a small uplink", plant: "ip link set uplink0 mtu 1400", trace: "web --to 192.0.2.254 --size 1500", code: "too-large", says: "takes packets of 1400 bytes at most, and this one has 1500", undo: "ip link set uplink0 mtu 1500"},
	{name: "a small host end", plant: "ip link set $(end web) mtu 1400", trace: "other --to web --size 1500", code: "too-large", says: "takes packets of 1400 bytes at most", undo: "ip link set $(end web) mtu 1500"},

	{name: "the packet filter is flushed", plant: "nft flush ruleset", trace: outwards, code: "not-masqueraded", says: "with the container's own address 10.88.0.2", undo: "cnictl repair >/dev/null"},
	{name: "nothing masquerades", plant: ":", trace: "bare --to 192.0.2.254", code: "not-masqueraded", says: "with the container's own address 10.92.0.2", undo: ":", more: "bare --to 10.92.0.1"},
	{name: "a dormant table", plant: "nft add table inet cnibox '{ flags dormant; }'", trace: outwards, code: "table-dormant", undo: "nft add table inet cnibox"},
	{name: "a dormant table, a published port", plant: "nft add table inet cnibox '{ flags dormant; }'", trace: published, code: "table-dormant", undo: "nft add table inet cnibox"},
	{name: "a port map that is gone", plant: "nft flush ruleset", trace: published, code: "not-published", says: "the port map is gone", undo: "cnictl repair >/dev/null"},
	{name: "a program of the node at the port", plant: "nft flush ruleset; (exec busybox httpd -f -p 8080 -h /run >/dev/null 2>&1 & echo $! >/run/httpd.pid)", trace: published, code: "not-published", says: "answers on the node",
		undo: "kill $(cat /run/httpd.pid); rm /run/httpd.pid; cnictl repair >/dev/null"},
	{name: "led elsewhere", plant: `nft add table ip early; nft add chain ip early p '{ type nat hook prerouting priority -150; }'; nft add rule ip early p tcp dport 8080 dnat to 10.88.0.3:80`, trace: published, code: "led-elsewhere",
		says: "a rule leads it to 10.88.0.3:80", hand: "nft flush chain ip early p", undo: "nft delete table ip early"},
	{name: "led to a neighbour", plant: led + unfiltered, trace: "web --to 192.0.2.254:443", code: "answer-past-the-host", says: "a rule leads it to 10.88.0.3, which answers web directly", undo: unled + filtered, more: outwards},
	{name: "led to a neighbour, by IPv6", plant: led6 + unfiltered, trace: "c3 --to [2001:db8:2::254]:443", code: "answer-past-the-host", says: "fd00:88::3, which answers c3 directly", undo: unled + filtered, more: outwards},
	{name: "led to itself", plant: led80 + unfiltered, trace: "other --to 192.0.2.254:80", code: "led-elsewhere", says: "a rule leads it back to other itself", hand: unled, undo: filtered, more: "other --to 192.0.2.254:80"},
	{name: "led to itself, by br_netfilter", plant: led80, trace: "other --to 192.0.2.254:80", code: "led-elsewhere", says: "a rule leads it back to other itself", hand: unled, undo: ":", more: "other --to 192.0.2.254:80"},
	{name: "from 127.0.0.1", plant: "sysctl -qw net.ipv4.conf.all.route_localnet=0 net.ipv4.conf.demo0.route_localnet=0", trace: "--from node --to 127.0.0.1:8080", code: "route-localnet", undo: ":"},
	{name: "nobody listens", plant: ":", trace: "--to 8083", code: "nobody-listens", whose: "the container", says: "nothing in c3 listens at", undo: ":", more: published},
	{name: "no route in the container", plant: "inside web ip route del default", trace: outwards, code: "no-route", whose: "cnibox", hand: "inside web ip route add default via 10.88.0.1", undo: ":"},
	{name: "no way back from the container", plant: "inside web ip route del default", trace: published, code: "no-way-back", whose: "cnibox", says: "web has no route back to 203.0.113.99", hand: "inside web ip route add default via 10.88.0.1", undo: ":"},
	{name: "a blackhole in the container", plant: "inside web ip route add blackhole 192.0.2.254", trace: outwards, code: "route-stops", whose: "the container", hand: "inside web ip route del blackhole 192.0.2.254", undo: ":"},
	{name: "the container's own rules", plant: `inside web 'nft add table inet own; nft add chain inet own o "{ type filter hook output priority 0; }"; nft add rule inet own o icmp type echo-request drop'`, trace: outwards, code: "container-drops",
		whose: "the container", says: "inside of web rule 2 in chain o of table inet own drops it", hand: "inside web nft delete table inet own", undo: ":"},
	{name: "the container's own rules, a published port", plant: `inside web 'nft add table inet own; nft add chain inet own i "{ type filter hook input priority 0; }"; nft add rule inet own i tcp dport 80 drop'`, trace: published, code: "container-drops",
		whose: "the container", hand: "inside web nft delete table inet own", undo: ":"},
	{name: "the network's list", plant: ":", trace: "kept --to 192.0.2.254:443", code: "list-closes", whose: "cnibox", says: "the list of network listed (plugin egress) does not contain 192.0.2.254:443", undo: ":", more: "kept --to 192.0.2.254"},
	{name: "the network's list, for the node", plant: ":", trace: "kept --to 10.90.0.1:22", code: "list-closes", whose: "cnibox", undo: ":", more: "--from node --to kept:80"},
	{name: "a rule, and a list that keeps questions from neighbours", plant: "inside kept ip neigh flush all; rule forward ip daddr 192.0.2.254 counter drop", trace: "kept --to 192.0.2.254:80", code: "rule-drops", says: "table inet mine"},
	{name: "the network's list, for neighbours", plant: ":", trace: "kept2 --to kept:80", code: "list-closes", whose: "cnibox", undo: ":", more: "--to 8082"},
	{name: "another sender", plant: "inside kept2 'ip address add 10.90.0.77/24 dev eth0; ip route replace default via 10.90.0.1 src 10.90.0.77'", trace: "kept2 --to 192.0.2.254", code: "sender-is-another", whose: "cnibox", says: "10.90.0.77",
		hand: "inside kept2 'ip address del 10.90.0.77/24 dev eth0 || true; ip route replace default via 10.90.0.1'", undo: ":"},
}
