#!/bin/bash
# Passes in guests what is skipped here because this machine's kernel lacks something: test-vm.sh uml|qemu-6.1 [short|crash|rows|limits]
# A test that is skipped here and does not pass there is an error. Some more tests are run there: it is another kernel,
# and user-mode-linux has iptables alone.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:?uml or a kernel of QEMU, see guest.sh}
which=${2:-} # short: some of each; crash: test/crash alone, all of it; rows: for the page of all rows;
# limits: what a machine of its own can set alone
logs=$PWD/bin/test-$kind
export CNIBOX_BIN_DIR=$PWD/bin

# finished OUTCOME LOG lists the tests of that outcome.
finished() { sed -n "s/^ *--- $1: \(.*\) (.*)\$/\1/p" "$2" | sort; }

# nothing_in LOG says that no test has the names that were asked for: to go's tests that is success.
nothing_in() { grep -q '^testing: warning: no tests to run' "$1"; }

# exactly makes patterns for -test.run of the names of tests.
exactly() { sed 's/[][\\.^$*+?(){}|]/\\&/g; s:/:$/^:g; s/.*/|^&$/' | tr -d '\n'; }

# try NAME PACKAGE MORE [HERE [THERE]] runs the tests of a package here, and in a guest those that are skipped and those
# that the pattern MORE is for. HERE and THERE are their arguments.
try() {
	local log=$logs/$1 program=$logs/$2.test failed= missing
	cd "test/$2"
	# shellcheck disable=SC2086 # arguments
	if ! "$program" -test.v ${4:-} >"$log.here" 2>&1 || nothing_in "$log.here"; then
		cat "$log.here"
		echo "test-vm: $1: fails here, or runs nothing"
		return 1
	fi
	finished SKIP "$log.here" >"$log.skipped"
	split -n "r/$guests" "$log.skipped" "$log.skipped."
	local part running=()
	for part in "$log.skipped."*; do
		# shellcheck disable=SC2086
		../../scripts/guest.sh "$kind" "$program" -test.v -test.timeout 3h -test.parallel "$parallel" -test.run "$3$(exactly <"$part")" ${5:-} \
			>"$log.there${part#"$log.skipped"}" 2>&1 &
		running+=($!)
	done
	for part in "${running[@]}"; do wait "$part" || failed=yes; done
	cat "$log.there."* >"$log.there"
	[ "$3" = '^$' ] || ! nothing_in "$log.there" || failed=yes
	finished PASS "$log.there" >"$log.passed"
	missing=$(comm -23 "$log.skipped" "$log.passed")
	if [ -n "$failed$missing" ]; then
		grep -vE '^=== (RUN|PAUSE|CONT)|^ *--- PASS' "$log.there" || true
		echo "test-vm: $1: fails in the guest; skipped here, and not passed there: ${missing:-none}"
		return 1
	fi
	echo "test-vm: $1: passed in the guest: $(wc -l <"$log.passed") tests, of which $(wc -l <"$log.skipped") are skipped here"
}

if [[ $kind == qemu-* ]] && ! command -v qemu-system-x86_64 >/dev/null; then
	scripts/install-packages.sh qemu-system-x86 qemu-system-common
fi
# There is no network in a guest, so all is built before: the tests, and by one of them the reference plugins.
rm -rf "$logs"
mkdir -p "$logs"
for package in agent conformance crash e2e netlab operator; do go test -c -o "$logs/$package.test" "./test/$package"; done
(cd test/netlab && "$logs/netlab.test" -test.run '^TestReferencePlugins$')

# A guest has one processor, but tests wait, for the reference plugins' addresses to be probed above all. An emulated processor is slow:
# there is less at once there, and guests of QEMU run one after another, or tests would exceed their time limits.
parallel=6 guests=1 tries=() failed= limits=
[ "$kind" = uml ] || parallel=2 limits='|TestCausesOfLimits' # user-mode-linux lacks nf_tables
start() {
	if [[ $kind == qemu-* ]]; then
		(try "$@") || failed=yes
	else
		try "$@" &
		tries+=($!)
	fi
}
case $which in
crash)
	guests=2
	start crash crash '^$' '-all -test.parallel 4' '-all'
	;;
rows)
	guests=2
	every=links,copies,chain,reference,debian
	start rows conformance '^$' "-test.run TestConformance -needs -suites $every" "-suites $every -outcomes"
	;;
limits)
	start limits operator '^$' '-test.run TestCausesOfLimits'
	;;
short)
	start links conformance '^$' '-test.run TestConformance/links/(dummy|vlan)/(ADD|the_result|DEL_twice) -needs -suites links' '-suites links'
	start operator operator '^$' '-test.run TestRecipes/(vlans|lan-address)'
	start e2e e2e '^$' '-test.run TestDELOrder|TestHardware'
	start netlab netlab '^TestPodsTalkOverBridge$'
	;;
*)
	start links conformance '^TestConformance$/^links$/./(^the_result,_to_the_byte$|^DEL_leaves_nothing$|legacy|^a_kernel_without_nf_tables)' \
		'-test.run TestConformance -needs -suites links' '-suites links'
	start reference conformance '^$' '-test.run TestConformance -needs -suites reference' '-suites reference'
	start operator operator '^$' "-test.run TestRepairKinds|TestRecipes|TestScripts/^new_$limits"
	start agent agent '^$' '-test.run TestHarms'
	start e2e e2e '^TestFullBridge$'
	start netlab netlab '^TestPodsTalkOverBridge$'
	;;
esac
for process in "${tries[@]}"; do wait "$process" || failed=yes; done
[ "$which" != rows ] || grep -h '^outcome' "$logs"/rows.there >"$logs/outcomes" # see -guest of test/conformance
[ "$which" != crash ] || grep -hE ' points +[0-9]+ ' "$logs"/crash.{here,there} | sort
[ -z "$failed" ]
