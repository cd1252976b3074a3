#!/bin/bash
# Tries the rows of conformance without root: as nobody, in a user namespace with one mapped id, whose network, mounts and processes are its own.
# What can't be there is found out by each row's probe, as on any machine: test-rootless.sh [short|vm]
set -euo pipefail
cd "$(dirname "$0")/.."
rows=TestConformance/links
guest=()
# Of each plugin what it gives, what it leaves, and where packets go.
case ${1:-} in
short) rows="$rows//(the_result,_to_the_byte|^DEL_leaves_nothing(_.iptables.)?$|publish|masquerad|rate)" ;;
vm) rows="$rows/^(ipvlan|vlan|vrf|dummy)$" guest=(scripts/guest.sh uml) ;; # this kernel may lack all of these
esac

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
go test -c -o "$dir/conformance.test" ./test/conformance
mkdir -m 1777 "$dir/bin" "$dir/tmp"
cp bin/cnibox bin/cnictl "$dir/bin" # nobody may not be let into this directory

# Distributions let everybody open /dev/net/tun. This machine may not. And only root can load the modules of iptables.
inside='unshare --net sh -c "for t in filter nat mangle; do iptables -t \$t -S; ip6tables -t \$t -S; done" >/dev/null 2>&1 || :
mount -t tmpfs tmpfs "$0/tmp"; mkdir -m 1777 "$0/tmp/tmp"; mknod -m 666 "$0/tmp/tun" c 10 200; mount --bind "$0/tmp/tun" /dev/net/tun
cd "$0"
export HOME=$0/tmp/tmp TMPDIR=$0/tmp/tmp CNIBOX_BIN_DIR=$0/bin
exec setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user --map-root-user --net --mount \
	./conformance.test -test.v -test.timeout 3h -outcomes -test.run "$1"'
code=0
"${guest[@]}" unshare --mount sh -ec "$inside" "$dir" "$rows" >"$dir/log" 2>&1 || code=$?

awk -F '\t' '$1 == "outcome" { n[$4]++; if ($4 == "n/a") why[$5]++; if ($4 == "FAIL") print "FAIL " $3 ": " $5 }
	END { printf "without root: %d rows hold, %d fail, %d are skipped\n", n["ok"], n["FAIL"], n["n/a"]; for (w in why) printf "%6d %s\n", why[w], w
		exit !n["ok"] }' "$dir/log" || code=1 # no row has that name
[[ $code = 0 ]] || tail -n 100 "$dir/log"
exit "$code"
