#!/bin/bash
# Tries rows of cnibox under other kernels, and puts what came of it into docs/project/kernels.md: test-kernels.sh [KERNEL...]
# A KERNEL is one of guest.sh, or here: this machine's own. Without any it is all of them. RUN is which rows, as a pattern of plugin/row for
# go test, and FEW says that it is one of so many of them: 10, or 1 for all, which takes hours under an emulated processor. Kernels and
# plugins that are not tried stay on the page as they are.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- qemu-5.10 qemu-6.1 qemu-6.12 uml here # the slowest first
few=${FEW:-10}
logs=$PWD/bin/test-kernels
export CNIBOX_BIN_DIR=$PWD/bin

if [[ " $*" == *" qemu-"* ]] && ! command -v qemu-system-x86_64 >/dev/null; then
	scripts/install-packages.sh qemu-system-x86 qemu-system-common
fi
rm -rf "$logs"
mkdir -p "$logs/outcomes"
go test -c -o "$logs/conformance.test" ./test/conformance
cd test/conformance # where the test expects to be

# try KERNEL tries the rows under it. Rows that a kernel can't do fail: the page says which and why.
try() {
	local run=() parallel=6 sample=(-test.short -few "$few")
	[ "$1" = here ] || run=(../../scripts/guest.sh "$1")
	[[ $1 != qemu-* ]] || parallel=2 # an emulated processor is slow: with more at once, rows would exceed their time limits
	[ "$few" != 1 ] || sample=()
	"${run[@]}" "$logs/conformance.test" -test.v -test.parallel "$parallel" -test.timeout 12h -test.run "^TestConformance\$/^links\$/${RUN:-.}" \
		-suites links -outcomes "${sample[@]}" >"$logs/$1.log" 2>&1 || true
	grep -aE '^(kernel|outcome|lack)	' "$logs/$1.log" >"$logs/outcomes/$1" || tail "$logs/$1.log"
}

# A guest has one processor: there is one for each of the machine's.
for kernel in "$@"; do
	while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do wait -n; done
	try "$kernel" &
done
wait
for kernel in "$@"; do [ -s "$logs/outcomes/$kernel" ]; done
"$logs/conformance.test" -test.run '^TestKernels$' -kernels "$logs/outcomes"
! grep -E '\| fails: ' ../../docs/project/kernels.md
