#!/bin/sh
# Runs fuzz tests of the tree for the time or the number of inputs given, say 10s or 5000x: each one, or one of each so many.
set -eu
time=${1:?how long for each test, or how many inputs}
few=${2:-1}

number=0
grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' cmd pkg plugins | LC_ALL=C sort | sed 's/:func / /' | while read -r file name; do
    number=$((number + 1))
    [ $((number % few)) -eq 0 ] || continue
    # Minimizing an input takes a minute by default, of the time given.
    go test -run='^$' -fuzz="^$name\$" -fuzztime="$time" -fuzzminimizetime=20x "./$(dirname "$file")"
done
