package bugreport

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/nftables"
)

// readNFT reads nf_tables: by nft, or where that does not work what of it there is.
func (s *source) readNFT(ctx context.Context, out *output) {
	printAll(ctx, out, 8*time.Second, []command{{"nftables.txt", "nft -a list ruleset"}})
	if len(out.files) == 0 || len(out.errs) > 0 {
		out.summarise()
	}
}

// summarise lists chains with the number of their rules, and sets with that of their elements.
func (o *output) summarise() {
	var list bytes.Buffer
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		o.fail("nf_tables", err)
		return
	}
	defer conn.CloseLasting()
	tables, err := conn.ListTables()
	if err != nil {
		o.fail("tables of nf_tables", err)
	}
	for _, t := range tables {
		fmt.Fprintf(&list, "table %s (family %d)\n", t.Name, t.Family)
		sets, err := conn.GetSets(t)
		if err != nil {
			o.fail("sets of table "+t.Name, err)
		}
		for _, set := range sets {
			elements, err := conn.GetSetElements(set)
			if err != nil {
				o.fail("set "+set.Name, err)
			}
			fmt.Fprintf(&list, "  set %s: %d elements\n", set.Name, len(elements))
		}
	}
	chains, err := conn.ListChains()
	if err != nil {
		o.fail("chains of nf_tables", err)
	}
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			o.fail("chain "+c.Name, err)
		}
		fmt.Fprintf(&list, "chain %s %s: %d rules", c.Table.Name, c.Name, len(rules))
		if c.Hooknum != nil && c.Priority != nil {
			fmt.Fprintf(&list, ", type %s hook %d priority %d", c.Type, *c.Hooknum, *c.Priority)
		}
		if c.Policy != nil {
			fmt.Fprintf(&list, " policy %d", *c.Policy)
		}
		list.WriteString("\n")
	}
	o.add("nftables-summary.txt", list.Bytes())
}
