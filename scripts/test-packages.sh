#!/bin/bash
# Tries the packages of bin/release in two Debians of their own, which lie in a directory for as long as this takes, and the image with containerd.
# RUN names tests, as for go test: all if it is not set.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -x $(command -v mmdebstrap) ]] || scripts/install-packages.sh mmdebstrap
scripts/setup-runtimes.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The package of the reference plugins is there for the way back.
mmdebstrap --quiet --variant=apt --include=podman,containernetworking-plugins,iproute2,iputils-ping,nftables,iptables,mount,systemd,pacman-package-manager,zstd,ansible-core,python3-apt \
	--customize-hook='chroot "$1" sh -c "cd /root && apt-get -qq download containernetworking-plugins"' bookworm "$dir/root"
# One has nothing but what apt needs; what pages have their readers install is fetched, and no more.
mmdebstrap --quiet --variant=apt --skip=cleanup/apt \
	--customize-hook='chroot "$1" apt-get -qq --download-only -y install busybox curl iproute2 containerd podman runc' bookworm "$dir/bare"
CNIBOX_BIN_DIR=$PWD/bin CNIBOX_DEBIAN_ROOT=$dir/root CNIBOX_BARE_ROOT=$dir/bare go test -count=1 -v -run "${RUN:-.}" ./test/packages
