#!/bin/bash
# Installs Debian packages without letting their services start, now or at the next boot: this may be somebody's
# machine, and tests start what they need in namespaces of their own. Run as root.
set -euo pipefail

policy=/usr/sbin/policy-rc.d

# invoke-rc.d asks this file before it starts a service, and 101 means no.
forbid_services() {
	if [[ -e $policy || -L $policy ]]; then
		saved_policy=$(mktemp "$policy.XXXXXX")
		mv -T "$policy" "$saved_policy"
	fi
	trap restore_services EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 0755 "$policy"
}

restore_services() {
	rm -f "$policy"
	if [[ -n ${saved_policy:-} ]]; then
		mv -T "$saved_policy" "$policy"
	fi
}

# What a package enables for the next boot is there as a link.
enabled() { find /etc/systemd/system -type l 2>/dev/null | sort; }

forbid_services
before=$(enabled)
apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >/dev/null
comm -13 <(echo "$before") <(enabled) | while read -r link; do rm -f "$link"; done
