#!/bin/bash
# The main job, start to end, in network and mount namespaces of its own: the
# host's network is not touched. Usage: demo.sh DIRECTORY-WITH-BINARIES
set -euo pipefail

if [ "${CNIBOX_DEMO:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo "demo: it makes namespaces, which takes root" >&2; exit 1; }
    exec env CNIBOX_DEMO=inside unshare --net --mount --propagation private -- "$0" "$(realpath "${1:?directory with cnibox and cnictl}")"
fi

bin=$1
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

# A node of our own: /run, /opt and the CNI directories are empty.
for dir in /run /opt /etc/cni /var/lib/cni; do
    [ -d $dir ] || continue
    mount -t tmpfs tmpfs $dir
done
scratch=$(mktemp -d /run/cnibox-demo.XXXXXX)
export PATH=$PATH:/usr/sbin:/sbin CNI_PATH=$scratch/plugins NETCONFPATH=$scratch/net.d
ip link set lo up

say "Install the plugins: one binary, and a stub for each name"
"$bin/cnictl" install --dir "$CNI_PATH"
ls -l "$CNI_PATH"

say "A network: bridge, addresses, a sysctl, published ports"
mkdir -p "$NETCONFPATH" "$scratch/www"
tee "$NETCONFPATH/demo.conflist" <<'CONF'
{
  "cniVersion": "1.1.0",
  "name": "demo",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "demo0",
      "isDefaultGateway": true,
      "ipMasq": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/24"}]]}
    },
    {"type": "tuning", "sysctl": {"net.core.somaxconn": "512"}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
CONF
echo "Hello from a container behind cnibox." >"$scratch/www/index.html"

# What a host has, in text. Counters and the node's own furniture stay out: the
# bridge and the empty nftables table serve the next container. So does whether a
# link is up: the kernel sets a bridge down a moment after its last port has gone.
look() {
    ip -brief link | awk '{print $1}'
    ip -brief address | awk '{$2 = ""; print}'
    ip route show table all | sed 's/ linkdown//'
    ip rule
    nft list ruleset
    find /var/lib/cni /run -type f ! -path '*/.cnibox/*' ! -name lock ! -name 'last_reserved_ip.*' \
        ! -path "$scratch.*" | sort
}

fetch() { # URL-HOST PORT
    exec 3<>"/dev/tcp/$1/$2"
    printf 'GET / HTTP/1.0\r\n\r\n' >&3
    tail -n 1 <&3
    exec 3<&-
}

serve() { # runs a container until it is told to stop
    "$bin/cnictl" run --network demo -p 8080:80 -- busybox httpd -f -p 80 -h "$scratch/www" &
    container=$!
    for _ in $(seq 100); do
        (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null && return
        kill -0 $container || wait $container
        sleep 0.1
    done
    echo "demo: the container does not answer" >&2
    exit 1
}

stop() {
    kill -TERM $container
    wait $container || true
}

say "A first container, to have the node's bridge and table made"
serve
stop
look >"$scratch.before"

say "Run a container that serves HTTP on port 80, published as port 8080"
serve
echo
echo "The page, fetched through the published port of the host:"
fetch 127.0.0.1 8080

say "What was made"
ip -brief link show type veth
ip -brief address show demo0
ip -d link show type veth | grep -o 'alias.*' || true
nft list map inet cnibox ports4_v1
nft list set inet cnibox masq_v1_10.89.0.0/24
find /var/lib/cni -type f | sort

say "Stop it, and compare with before"
stop
look >"$scratch.after"
if diff -u "$scratch.before" "$scratch.after"; then
    echo "Nothing is left: links, addresses, routes, rules and files are as before."
else
    echo "demo: the above is left" >&2
    exit 1
fi
