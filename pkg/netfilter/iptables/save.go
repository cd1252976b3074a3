package iptables

import "strings"

// listing is what iptables-save tells of a table.
type listing struct {
	chains map[string]bool // without the kernel's own
	rules  []rule
}

// parseListing reads the output of iptables-save for one table, whose lines are
//
//	*nat
//	:CNI-HOSTPORT-DNAT - [0:0]
//	-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
//	COMMIT
//
// Lines of any other kind are left out.
func parseListing(f family, text string) listing {
	l := listing{chains: map[string]bool{}}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if name, ok := strings.CutPrefix(line, ":"); ok {
			name, policy, _ := strings.Cut(name, " ")
			if strings.HasPrefix(policy, "-") {
				l.chains[name] = true
			}
			continue
		}
		text, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		chain, spec, _ := strings.Cut(text, " ")
		if _, whole := words(spec); chain != "" && whole {
			l.rules = append(l.rules, rule{family: f, chain: chain, spec: spec})
		}
	}
	return l
}

// has returns how often each rule is there, by identity.
func (l listing) has() map[string]int {
	count := make(map[string]int, len(l.rules))
	for _, r := range l.rules {
		count[r.identity()]++
	}
	return count
}

// jumpsTo returns the rules that jump to a chain.
func (l listing) jumpsTo(chain string) []rule {
	var list []rule
	for _, r := range l.rules {
		if r.target() == chain {
			list = append(list, r)
		}
	}
	return list
}

// inChain returns the rules of a chain.
func (l listing) inChain(chain string) []rule {
	var list []rule
	for _, r := range l.rules {
		if r.chain == chain {
			list = append(list, r)
		}
	}
	return list
}
