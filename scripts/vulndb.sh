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
module=$(cd / && go mod download -json golang.org/x/vulndb@latest | jq -er '"\(.Dir) \(.Version)"')
ln -s "${module% *}/data/osv" ID
find ID/ -name '*.json' -exec cat {} + | jq -s '
	[.[] | {id, modified, path: .affected[].package.name}]
	| group_by(.path) | map({path: .[0].path, vulns: (map({id, modified}) | unique)})' >index/modules.json
jq '{modified: [.[].vulns[].modified] | max}' index/modules.json >index/db.json
# Without an index of what matters, govulncheck would find nothing, and say so.
jq -e 'any(.path == "stdlib")' index/modules.json >/dev/null
echo "the list of known vulnerabilities is that of golang.org/x/vulndb ${module#* }"
