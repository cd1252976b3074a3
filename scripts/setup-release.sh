#!/bin/bash
# Installs what runs the programs of other architectures, if there are any in bin/release.
set -euo pipefail
cd "$(dirname "$0")/.."
for tree in bin/release/tree/linux-*; do
	[[ $tree == *-$(go env GOARCH) || -x $(command -v qemu-aarch64-static) ]] || exec scripts/install-packages.sh qemu-user-static
done
