// Package bench measures what a runtime waits for: ADD, CHECK and DEL through libcni, with cnibox, with the reference
// plugins and with plugins that do nothing.
//
//	make bench
//
// or a part of it, without a report:
//
//	go test ./test/bench -run '^$' -bench Plugins/node -benchtime 1x -args -rounds 10
//
// Each implementation has a [netlab.Host] of its own, and they take turns. With -short each scenario runs, smaller, to
// show that it works; its figures say little.
package bench
