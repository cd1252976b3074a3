package nft

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// isExact reports whether nobody but us may have rules in the table: any could open what lists close. An administrator's rules in the others do no harm.
func (t *table) isExact() bool {
	return slices.Contains([]nftables.Table{judgeTable, guardTable}, t.Table)
}

// hasExactly reports whether a chain has these rules, in this order, and no others.
func (t *table) hasExactly(chain string, rules []rule) bool {
	isSame := func(is *nftables.Rule, want rule) bool {
		does, compares := essence(is.Exprs)
		wants, least := essence(want)
		return slices.Equal(does, wants) && compares >= least
	}
	for range 2 { // a list that is interrupted by a change may lack something
		is, err := t.conn.GetRules(&t.Table, &nftables.Chain{Name: chain})
		if err == nil && slices.EqualFunc(is, rules, isSame) {
			return true
		}
	}
	return false
}

// essence is what stays as it is of a rule when nft lists and loads it: all that it does and looks into. It compares in an order of its own, and perhaps more.
func essence(words []expr.Any) (does []string, compares int) {
	for _, w := range words {
		switch w := w.(type) {
		case *expr.Cmp, *expr.Range:
			compares++
		case *expr.Bitwise, *expr.Fib, *expr.Exthdr:
		case *expr.Payload:
			if w.OperationType == expr.PayloadWrite {
				does = append(does, "write")
			}
		case *expr.Meta:
			if w.SourceRegister {
				does = append(does, fmt.Sprint("meta ", w.Key))
			}
		case *expr.Ct:
			if w.SourceRegister || w.Register == 0 { // as the library reads it
				does = append(does, fmt.Sprint("ct ", w.Key))
			}
		case *expr.Immediate:
			does = append(does, fmt.Sprint("data ", w.Data))
		case *expr.Lookup:
			does = append(does, fmt.Sprint("in ", w.SetName, " ", w.Invert))
		case *expr.Verdict:
			does = append(does, fmt.Sprint("verdict ", w.Kind, " ", w.Chain))
		default:
			does = append(does, fmt.Sprintf("%T", w))
		}
	}
	return does, compares
}
