#!/bin/bash
# Builds the artefacts of a release into bin/release: release.sh ARCH... (amd64, arm64, as Go names them). `make release` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/bin/release tree=$PWD/bin/release/tree pack=$PWD/bin/pack-release commands=$PWD/bin/commands.json

# What a release is made of depends on the commit alone: this is the time that all files get.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rm -rf "$out"
mkdir -p "$tree"/share/{man/man1,completion,doc}

for arch in "$@"; do
	GOOS=linux GOARCH=$arch make build "BIN=$tree/linux-$arch"
	case $arch in amd64 | arm64) GOOS=linux GOARCH=$arch make cni-conformance "BIN=$tree/linux-$arch" ;; esac
done

go test -count=1 ./cmd/cnictl -run '^TestCommands$' -args -commands "$commands"
bin/cnictl completion bash >"$tree/share/completion/cnictl.bash"
bin/cnictl completion zsh >"$tree/share/completion/_cnictl"
bin/cnictl completion fish >"$tree/share/completion/cnictl.fish"
cp LICENSE README.md CHANGELOG.md "$tree/share/doc"

go build -C scripts/release -o "$pack" .
modified=false
[[ -z $(git status --porcelain) ]] || modified=true
"$pack" -source "$PWD" -commit "$(git rev-parse HEAD)" "-modified=$modified" -commands "$commands" -tree "$tree" -out "$out" "$@"
(cd "$out" && find . -maxdepth 1 -type f -printf '%11s  %f\n' | sort -k 2)
