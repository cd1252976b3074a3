// Package conformance says what CNI plugins promise to their users, a row for each promise, and tests any plugins by it.
//
// A row drives plugins as a runtime does, on a node made of namespaces, and looks at what comes of it from outside: results,
// packets, addresses, files that others read too. It knows neither how a plugin keeps its rules nor what it calls them, so the
// rows hold for everybody's plugins:
//
//	make cni-conformance && bin/cni-conformance --plugins /opt/cni/bin
//
// That is this package's test binary, told by the linker to be a program of its own (standalone_test.go). With go test the plugins are those of this
// repository: as links to one binary, and once more with each list as one entry
// of type chain (-short leaves out most of those). -suites names others: copies (of the binary), reference (the reference plugins) and debian (the
// distribution's package of them). Stubs, which releases install, are tried by the other packages. -agent runs the agent on each node. docs/project/conformance.md has what all of them do; make conformance writes it.
//
// # How a row is added
//
// The rows of a plugin are in the files that begin with its name, those about the contract that all plugins share in contract_*.
// What several main plugins promise is written once, in main_*_test.go, with the words that differ in mainPlugin. A row is a value
// in one of their lists:
//
//	{
//		// The promise, in words for a user. It is the test's name and a line of the page, so no two rows of a group have the same.
//		name: "DEL with the namespace gone removes the spoof check",
//		// Why the reference plugins do otherwise: they must fail the row then, and the page counts it. Without it they must pass.
//		differs: "its DEL removes no spoof check once the namespace is gone",
//		// Set if the row is to be tried with the rules of iptables, too. lab.lan and the like ask for lab.backend.
//		backends: true,
//		// What not every kernel has. The row is skipped without it here, and tried in a guest by make test-vm.
//		needs: &netlab.BridgeVLANFiltering,
//		test: func(l *lab) {
//			n := l.lan("macspoofchk", "true") // a network of bridge; the file of each plugin begins with its own
//			l.warm(n)                         // what all containers of a network share is there from now on
//			before := l.now()                 // links, addresses, rules, files: all that the node has
//			web := l.attach(n, "web")         // a pod and its ADD, which ends the row if it fails
//			web.Delete(l)
//			l.must(web.del())
//			before.unchanged() // fails the row with a line for each thing that is different
//		},
//	}
//
// choice marks what the CNI specification and the reference leave open. known says what is wrong with our own plugins as long as they
// fail the row; it has to be removed with the defect. l.stopIfFailed ends a row of many cases at the first that fails. l.foreign
// ends a row that is not about the plugins which are tested.
//
// A row is run by its name, with underscores for blanks, after links/; reference/ and -suites reference show whether it differs there.
// make rows puts its name on the page, where it is "not yet" tried until -report or make conformance writes what comes of it:
//
//	go test ./test/conformance -run 'TestConformance/links/bridge/DEL_with_the_namespace_gone_removes_the_spoof_check' -v
//	go test ./test/conformance -run 'TestConformance/reference/bridge/DEL_with_the_namespace_gone_removes_the_spoof_check' -v -args -suites reference
//	make rows
//	scripts/test-vm.sh uml # rows that this kernel lacks something for
//	make test-kernels RUN='bridge/^DEL_with' FEW=1 # under other kernels, for docs/project/kernels.md
package conformance
