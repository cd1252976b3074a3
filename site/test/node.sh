#!/bin/sh
# Prints the page of cnictl show --html of a node with several bridges, routed links, published ports and IPv6. The node is this process's: run it
# with unshare -mn.
set -eu
cnictl=$1
for dir in /opt /etc/cni /var/lib/cni /run; do mkdir -p "$dir"; mount -t tmpfs none "$dir"; done
mkdir -p /etc/cni/net.d /run/netns
ip link set lo up
ip link add eth0 type veth peer name far
ip link set eth0 up
ip link set far up
ip address add 192.0.2.2/24 dev eth0
ip address add 2001:db8::2/64 dev eth0 nodad
ip route add default via 192.0.2.1
"$cnictl" install --dir /opt/cni/bin >/dev/null

# network NAME MAIN-PLUGIN RANGES
network() {
	cat >"/etc/cni/net.d/$1.conflist" <<-END
		{"cniVersion": "1.0.0", "name": "$1", "plugins": [{$2, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [$3]}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]}
	END
}
# pod NETWORK NAME FLAG...
pod() {
	network=$1 name=$2
	shift 2
	ip netns list | grep -q "^$name\b" || ip netns add "$name"
	"$cnictl" add "$network" "/run/netns/$name" --id "$name" "$@" >/dev/null
}
network web '"type": "bridge", "bridge": "web0", "isGateway": true' '[{"subnet": "10.10.0.0/24"}], [{"subnet": "fd00:10::/64"}]'
network mail '"type": "bridge", "bridge": "mail0", "isGateway": true' '[{"subnet": "10.20.0.0/24"}]'
network routed '"type": "ptp"' '[{"subnet": "10.30.0.0/28"}], [{"subnet": "fd00:30::/64"}]'
for i in 1 2 3 4 5 6 7 8 9; do pod web "web-$i"; done
pod web shop --publish 8080:80 --publish 8443:443
pod web shop-with-a-name-that-is-much-too-long --publish 8081:80
pod mail smtp --publish 25:25 --publish 587:587
pod mail imap --publish 143:143
pod mail search
pod routed dns --publish 53:53/udp --publish 53:53
pod routed ntp
ip netns delete search
"$cnictl" show --html -
