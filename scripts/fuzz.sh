#!/bin/sh
# Runs each fuzz test of the tree for the time or the number of inputs given,
# say 10s or 5000x.
set -eu
time=${1:?how long for each test, or how many inputs}

grep -rl --include='*_test.go' '^func Fuzz' cmd pkg plugins | xargs -n1 dirname | sort -u | while read -r dir; do
    for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go); do
        # Minimizing an input takes a minute by default, of the time given.
        go test -run='^$' -fuzz="^$name\$" -fuzztime="$time" -fuzzminimizetime=20x "./$dir"
    done
done
