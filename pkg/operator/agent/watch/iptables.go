package watch

import (
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
)

// iptables-restore does what our plugins tell it to, as it does for others, so that in iptables' tables it counts what is deleted. A DEL removes
// an attachment's rules with its chains, and never a jump from a chain of iptables to one that attachments share. So a hit is such a
// jump; a rule of a container's chain, or a jump to it, when the chain stays; and a table that had one of our rules. A removal from
// CNI-FORWARD alone is not seen: it looks as when a DEL does it.

// readIPTables takes in what happened to a table of iptables.
func (t *transaction) readIPTables(kind uint16, table string, data []byte) {
	what := "rules of iptables were deleted from table " + table
	switch kind {
	case unix.NFT_MSG_DELTABLE:
		if t.tables[table] {
			t.hits[table] = what
		}
	case unix.NFT_MSG_DELCHAIN:
		t.forget(table + " " + text(attribute(data, sizeofNfgenmsg, unix.NFTA_CHAIN_NAME)))
	case unix.NFT_MSG_DELRULE, unix.NFT_MSG_NEWRULE:
		if !iptables.IsMentioned(data) {
			return
		}
		about := ruleAbout(data)
		if about != "" && kind == unix.NFT_MSG_NEWRULE {
			t.forget(table + " " + about)
			return
		}
		t.tables[table] = true
		if about != "" {
			t.add(table+" "+about, what)
		}
	}
}

// ruleAbout says what a rule that mentions us is about, which is what puts it back or explains that it is deleted: the container's chain that it
// is in or leads to, or the jump that it is. It is "" for rules that a DEL may remove by themselves.
func ruleAbout(rule []byte) string {
	chain, target := text(attribute(rule, sizeofNfgenmsg, unix.NFTA_RULE_CHAIN)), ""
	for _, e := range attributes(attribute(rule, sizeofNfgenmsg, unix.NFTA_RULE_EXPRESSIONS), 0) {
		if text(attribute(e, 0, unix.NFTA_EXPR_NAME)) == "immediate" {
			verdict := attribute(attribute(attribute(e, 0, unix.NFTA_EXPR_DATA), 0, unix.NFTA_IMMEDIATE_DATA), 0, unix.NFTA_DATA_VERDICT)
			target = text(attribute(verdict, 0, unix.NFTA_VERDICT_CHAIN))
		}
	}
	switch {
	case iptables.IsContainers(target):
		return target
	case iptables.IsContainers(chain):
		return chain
	case !iptables.IsMentioned([]byte(chain)) || iptables.IsConstant(chain):
		return chain + " " + target
	}
	return ""
}
