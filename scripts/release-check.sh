#!/bin/bash
# Builds a release of HEAD twice, in two directories and with nothing compiled before, and compares the checksums: release-check.sh ARCH...
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for clone in first second-in-another-place; do
	git clone -q . "$work/$clone"
	GOCACHE=$work/cache make -s -C "$work/$clone" release "ARCHES=$*" >/dev/null
	mv "$work/$clone/bin/release/SHA256SUMS" "$work/$clone.sums"
	rm -rf "$work/cache" "${work:?}/$clone"
done
diff "$work"/*.sums
cat "$work/first.sums"
echo "both builds are the same"
