package iptables

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Where the kernel has no nf_tables, and iptables is the one that wants it, the other one beside it does all. Without that one the error says what to do.
func TestWithoutNFTables(t *testing.T) {
	for name, r := range kinds(t, keyOf("a")) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, legacy)
			t.Setenv("PATH", n.UseIPTablesInVain(t)+string(filepath.ListSeparator)+os.Getenv("PATH"))
			must(t, n.try(func() error { return on(t).Available(true) }))
			n.add(t, r)
			n.has(t, "ADD", r.owner.kind.table(), slices.Concat(r.shared, r.own)...)
			must(t, n.check(t, r))
			n.gc(t, "net")
			n.has(t, "GC", r.owner.kind.table(), r.shared...)
			same(t, "records", n.kept(t), "")

			n.hidePrograms(t)
			for _, err := range []error{n.try(func() error { return on(t).Available(true) }), n.tryAdd(t, r)} {
				wantError(t, err, "the kernel has no nf_tables", "update-alternatives --set iptables /usr/sbin/iptables-legacy")
			}
			same(t, "left of an ADD that failed", n.kept(t), "")
		})
	}
}
