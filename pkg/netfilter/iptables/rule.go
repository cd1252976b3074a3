package iptables

import (
	"net/netip"
	"strings"
)

// rule is a rule of a table, as iptables-save prints it: the options in its
// order, the target last.
type rule struct {
	family family
	chain  string
	spec   string

	// first says that it goes to the head of the chain.
	first bool

	// addr is an address in it, for a rule in a chain that others share; the
	// zero Addr if there is nothing to know it by but its target.
	addr netip.Addr
}

func (r rule) String() string { return "-A " + r.chain + " " + r.spec }

// add is the line of iptables-restore that adds the rule.
func (r rule) add() string {
	if r.first {
		return "-I " + r.chain + " " + r.spec
	}
	return "-A " + r.chain + " " + r.spec
}

// check is the line that fails if the rule is not there.
func (r rule) check() string { return "-C " + r.chain + " " + r.spec }

// remove is the line that removes the rule, and fails if it is not there.
func (r rule) remove() string { return "-D " + r.chain + " " + r.spec }

// target returns what the rule jumps to.
func (r rule) target() string {
	w, _ := words(r.spec)
	return option(w, "-j")
}

// identity is equal for two texts of one rule. Rules that lead to a container's
// port maps are known by their ports: conditions are in them in the words of
// the configuration, which iptables-save prints in others.
func (r rule) identity() string {
	w, _ := words(r.spec)
	if target := option(w, "-j"); strings.HasPrefix(target, portsPrefix) {
		w = []string{option(w, "-p"), option(w, "--dports"), target}
	}
	return r.family.String() + "\n" + r.chain + "\n" + strings.Join(w, "\n")
}

// option returns the word that follows name, "" if there is none.
func option(words []string, name string) string {
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == name {
			return words[i+1]
		}
	}
	return ""
}

func in(f family, rules []rule) []rule {
	var list []rule
	for _, r := range rules {
		if r.family == f {
			list = append(list, r)
		}
	}
	return list
}

// identities returns the identities of rules.
func identities(rules []rule) map[string]bool {
	set := make(map[string]bool, len(rules))
	for _, r := range rules {
		set[r.identity()] = true
	}
	return set
}
