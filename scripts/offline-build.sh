#!/bin/bash
# Builds from the vendored source archive of bin/release as a build root of a distribution does: without a network, with a cache of modules that is
# empty, with the Go that is there, and as nobody. What is linked has to be what the release's programs have, by what Go says of both; the bytes are
# others: Go notes where files were, and the checksums of modules that it has fetched itself.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$PWD/bin/release
toolchain=$(sed -n 's/^toolchain //p' go.mod)
archive=$(echo "$release"/cnibox-*-vendor.tar.gz)
goroot=$(GOTOOLCHAIN=${GOTOOLCHAIN:-$toolchain} go env GOROOT)
[[ $(id -u) == 0 ]] || { echo "run it as root: it makes a namespace without a network" >&2; exit 1; }
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/home" "$work/system" "$work/go"
tar -C "$work" -xzf "$archive" --strip-components 1 --one-top-level=source
chown -R 65534:65534 "$work"

# The Go may be root's alone, so it is seen in another place.
inside() {
	unshare -nm sh -ec 'mount --bind "$1" "$2/go"; shift 2; exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"' sh "$goroot" "$work" \
		env -i PATH="$work/go/bin:/usr/bin:/bin" HOME="$work/home" GOTOOLCHAIN=local GOFLAGS=-mod=vendor make -s -C "$work/source" "$@"
}
inside build
inside install-system DESTDIR="$work/system"
inside check-build-root
modules() { "$goroot/bin/go" version -m "$1" | awk '$1 == "path" || $1 == "dep" { print $2, $3 }'; }
for program in cnibox cnibox-etcd cnictl; do
	diff <(modules "$work/source/bin/$program") <(modules "$release/tree/linux-$(go env GOARCH)/$program")
done
(cd "$work/system" && find . -type f | wc -l | sed 's/$/ files for packages/')
