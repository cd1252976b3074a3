// Package conformance says what CNI plugins promise to their users, a row for each promise, and tests any plugins by it.
//
// A row drives plugins as a runtime does, on a node made of namespaces, and looks at what comes of it from outside: results,
// packets, addresses, files that others read too. It knows neither how a plugin keeps its rules nor what it calls them, so the
// rows hold for everybody's plugins:
//
//	go test -v ./test/conformance -args -plugins /opt/cni/bin
//
// Without -plugins the plugins are those of this repository: as links to one binary, and once more with each list as one entry
// of type chain. -suites names others: copies (of the binary), reference (the reference plugins) and debian (the
// distribution's package of them). docs/conformance.md has what all of them do; make conformance writes it.
package conformance
