#!/bin/bash
# Installs what `go test ./test/runtimes` drives: containerd, podman and their tools, from Debian's
# packages. No daemon is started, and the host's own network is left alone. Run as root; it does nothing when
# everything is there already.
set -euo pipefail

packages=(containerd runc podman buildah conmon busybox-static curl iproute2 nftables iptables)

# An attachment is configured by what is in /etc/cni/net.d, so a package must not add a network of its own to a
# machine that had none.
podman_network=/etc/cni/net.d/87-podman-bridge.conflist

installed() {
	dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$1" 2>/dev/null | grep -q ' installed$'
}

install_packages() {
	local had_network=no
	if [[ -e $podman_network ]]; then had_network=yes; fi
	"$(dirname "$0")/install-packages.sh" "$@"
	if [[ $had_network == no ]]; then rm -f "$podman_network"; fi
}

missing=()
for package in "${packages[@]}"; do
	installed "$package" || missing+=("$package")
done
if ((${#missing[@]} > 0)); then
	if [[ $EUID != 0 ]]; then
		echo "setup-runtimes.sh: not installed: ${missing[*]}; run this as root" >&2
		exit 1
	fi
	install_packages "${missing[@]}"
fi

