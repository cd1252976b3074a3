package conformance

import (
	"slices"

	"github.com/cnibox/cnibox/test/netlab"
)

// needing are these rows for kernels that have the feature.
func needing(feature *netlab.Feature, lists ...[]row) []row {
	rows := slices.Concat(lists...)
	for i := range rows {
		if rows[i].needs == nil {
			rows[i].needs = feature
		}
	}
	return rows
}

// egressKernel are rows for every kernel: a list is kept to, or there is no container.
func egressKernel() []row {
	return []row{{name: "a kernel without nf_tables for IP gets no container with a list: code 50, what it lacks, and nothing is left", test: func(l *lab) {
		n := conf(lan, egress("allow", "[]"))
		fails := func(name string) {
			w := l.pod(name)
			err := w.add(n)
			if netlab.Has(l, netlab.NFTables) {
				l.must(err)
				return
			}
			l.code(err, 50, "nf_tables")
			l.must(w.delBare()) // as a runtime does when an ADD has failed
			w.Delete(l)
		}
		fails("first") // the bridge stays
		if netlab.Has(l, netlab.NFTables) {
			return
		}
		before := l.now()
		fails("second")
		before.unchanged()
	}}}
}
