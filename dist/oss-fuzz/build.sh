#!/bin/bash -eu
# Builds each fuzz test of the tree, by OSS-Fuzz' compile_native_go_fuzzer. A target is called by its package and its test.
cd "$SRC/cnibox"
grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' cmd pkg plugins | LC_ALL=C sort | while IFS=: read -r file test; do
	package=$(dirname "$file") test=${test#func }
	compile_native_go_fuzzer "$(go list "./$package")" "$test" "$(tr / _ <<<"$package")_$test"
done
