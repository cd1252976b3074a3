#!/bin/bash
# Makes Go's newest list of known vulnerabilities into a directory: vulndb.sh DIRECTORY
#
# The list is in the Go module golang.org/x/vulndb, so it comes from where all modules come from. What it lacks there, to be
# a database that govulncheck reads, is an index: https://go.dev/doc/security/vuln/database.
set -euo pipefail

mkdir -p "$1"
cd "$1"
rm -rf index ID
mkdir index
# Outside of our module, whose requirements have no say in it.
module=$(cd / && go mod download -json golang.org/x/vulndb@latest)
ln -s "$(jq -r .Dir <<<"$module")/data/osv" ID
jq '{modified: .Time}' "$(jq -r .Info <<<"$module")" >index/db.json
find ID/ -name '*.json' -exec cat {} + | jq -s '
	[.[] | {id, modified, path: .affected[].package.name}]
	| group_by(.path) | map({path: .[0].path, vulns: (map({id, modified}) | unique)})' >index/modules.json
# With an index of nothing, govulncheck would find nothing, and say so.
if ! jq -e 'any(.path == "stdlib")' index/modules.json >/dev/null; then
	echo "vulndb.sh: no entry of golang.org/x/vulndb is about Go itself: has its form changed? Compare $PWD/ID with what this script reads" >&2
	exit 1
fi
jq -r '"the list of known vulnerabilities is that of golang.org/x/vulndb \(.Version)"' <<<"$module"
