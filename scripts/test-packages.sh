#!/bin/bash
# Tries the packages of bin/release in a Debian of its own, which lies in a directory for as long as this takes, and the image with containerd.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -x $(command -v mmdebstrap) ]] || scripts/install-packages.sh mmdebstrap
scripts/setup-runtimes.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The package of the reference plugins is there for the way back.
mmdebstrap --quiet --variant=apt --include=podman,containernetworking-plugins,iproute2,iputils-ping,nftables,iptables,mount,systemd,pacman-package-manager,zstd,ansible-core,python3-apt \
	--customize-hook='chroot "$1" sh -c "cd /root && apt-get -qq download containernetworking-plugins"' bookworm "$dir/root"
CNIBOX_BIN_DIR=$PWD/bin CNIBOX_DEBIAN_ROOT=$dir/root go test -count=1 -v ./test/packages
