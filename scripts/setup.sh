#!/bin/sh
# Installs the Debian or Ubuntu packages that the demo and the tests need, if
# one is missing.
set -eu

missing=
need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || missing="$missing $2"
}
need ip iproute2
need ping iputils-ping
need nft nftables
need iptables iptables
need conntrack conntrack
need ethtool ethtool
need strace strace
need jq jq
need openssl openssl
need curl curl
need sysctl procps
need busybox busybox-static
need etcd etcd-server
need etcdctl etcd-client
need mkfs.ext4 e2fsprogs
need firewalld firewalld
need ufw ufw
need dnsmasq dnsmasq-base
need dhcpd isc-dhcp-server
need kea-dhcp4 kea-dhcp4-server
need kea-dhcp6 kea-dhcp6-server
need sqfstar squashfs-tools
need qemu-arm-static qemu-user-static
need rpm rpm
[ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
need dbus-daemon dbus-daemon
/usr/bin/python3 -c 'from jsonschema import Draft202012Validator' 2>/dev/null || missing="$missing python3-jsonschema"
need systemd-analyze systemd

if ! command -v go >/dev/null 2>&1; then
    echo "setup: no Go toolchain in PATH: see https://go.dev/doc/install" >&2
    exit 1
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "setup: these packages are missing, and only root can install them:$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
# shellcheck disable=SC2086 # a list of packages
"$(dirname "$0")/install-packages.sh" $missing
