#!/bin/sh
# Builds etcd 3.5 and 3.6 and their etcdutl from their modules, for the tests: into DIRECTORY/3.5 and DIRECTORY/3.6.
set -eu
to=$1
for version in 3.5.35 3.6.16; do
	dir=$to/${version%.*}
	mkdir -p "$dir/source"
	[ "$(cat "$dir/version" 2>/dev/null)" != "$version" ] || continue
	(
		cd "$dir/source"
		printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' >main.go
		[ -e go.mod ] || go mod init etcd
		go get "go.etcd.io/etcd/server/v3@v$version" "go.etcd.io/etcd/etcdutl/v3@v$version"
		go build -buildvcs=false -o ../etcd .
		go build -buildvcs=false -o ../etcdutl go.etcd.io/etcd/etcdutl/v3
	)
	echo "$version" >"$dir/version"
done
