#!/bin/bash
# Tries the rows of cnibox under other kernels, and puts what came of it into docs/project/kernels.md: test-kernels.sh [KERNEL...]
# A KERNEL is one of guest.sh, or here: this machine's own. Without any it is all of them, one after another, which takes some ten hours. RUN is
# which rows, as a pattern of plugin/row for go test: kernels and plugins that are not tried stay on the page as they are.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- here uml qemu-5.10 qemu-6.1 qemu-6.12
logs=$PWD/bin/test-kernels
export CNIBOX_BIN_DIR=$PWD/bin

if [[ " $*" == *" qemu-"* ]] && ! command -v qemu-system-x86_64 >/dev/null; then
	scripts/install-packages.sh qemu-system-x86 qemu-system-common
fi
mkdir -p "$logs"
go test -c -o "$logs/conformance.test" ./test/conformance
cd test/conformance # where the test expects to be
for kernel in "$@"; do
	run=() parallel=6
	[ "$kernel" = here ] || run=(../../scripts/guest.sh "$kernel")
	[[ $kernel != qemu-* ]] || parallel=2 # an emulated processor is slow: with more at once, rows would exceed their time limits
	# Rows that a kernel can't do fail: the page says which and why.
	"${run[@]}" "$logs/conformance.test" -test.v -test.parallel "$parallel" -test.timeout 12h -test.run "^TestConformance\$/^links\$/${RUN:-.}" \
		-suites links -outcomes >"$logs/$kernel.log" 2>&1 || true
	rm -rf "$logs/outcomes"
	mkdir "$logs/outcomes"
	if ! grep -aE '^(kernel|outcome|lack)	' "$logs/$kernel.log" >"$logs/outcomes/$kernel"; then
		tail "$logs/$kernel.log"
		exit 1
	fi
	"$logs/conformance.test" -test.run '^TestKernels$' -kernels "$logs/outcomes"
done
! grep -E '\| fails: ' ../../docs/project/kernels.md
