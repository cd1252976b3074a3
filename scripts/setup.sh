#!/bin/sh
# Installs the Debian or Ubuntu packages that the demo and the tests need, if
# one is missing. Nothing in them starts a service.
set -eu

missing=
need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || missing="$missing $2"
}
need ip iproute2
need nft nftables
need iptables iptables
need conntrack conntrack
need strace strace
need sysctl procps
need busybox busybox-static
need mkfs.ext4 e2fsprogs

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
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# shellcheck disable=SC2086 # a list of packages
apt-get install -q -y --no-install-recommends $missing >/dev/null
