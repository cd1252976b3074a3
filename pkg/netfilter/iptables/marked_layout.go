package iptables

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// layoutOf returns the layout of a flavour's tables.
func (p *probes) layoutOf(fl flavour) layout {
	switch {
	case fl == legacy:
		return &legacyLayout{&p.legacy}
	case p.nft.conn == nil:
		return noLayout{}
	}
	return &p.nft
}

// noLayout is that of what the kernel does not have.
type noLayout struct{ nothing }

func (noLayout) jumps(family, string) ([]string, error) { return nil, nil }
func (noLayout) drops(family) (bool, error)             { return false, nil }

// legacyLayout reads the entries of a table, which are its rules, chain by
// chain. A jump is the offset of the rule that it leads to.
type legacyLayout struct {
	*legacyProbe
}

// hasChain knows that a table has its base chains.
func (p *legacyLayout) hasChain(f family, table, chain string) (bool, error) {
	if chain != hookChain {
		return p.legacyProbe.hasChain(f, table, chain)
	}
	t, err := p.table(f, table)
	return err == nil && t.isThere(), err
}

// jumps can't tell base chains apart: it has the rules of all of them for
// FORWARD, the only one that jumps to our chain.
func (p *legacyLayout) jumps(f family, chain string) ([]string, error) {
	t, err := p.table(f, filterTable)
	if err != nil {
		return nil, err
	}
	const endOfChain = -5 // XT_RETURN: each chain has it as its last rule
	var targets []string
	l := parseLegacy(f, t.entries)
	for _, r := range l.rules {
		if r.always && r.to == endOfChain {
			continue
		}
		if r.chain == chain || chain == hookChain && r.chain == "" {
			targets = append(targets, l.chains[r.to])
		}
	}
	return targets, nil
}

// drops looks for the policy, which is the last rule of a base chain. It says
// so too if another base chain has it, which is rare.
func (p *legacyLayout) drops(f family) (bool, error) {
	t, err := p.table(f, filterTable)
	if err != nil {
		return false, err
	}
	const drop = -1 // -NF_DROP - 1
	for _, r := range parseLegacy(f, t.entries).rules {
		if r.chain == "" && r.always && r.to == drop {
			return true, nil
		}
	}
	return false, nil
}

// legacyRules is what parseLegacy finds.
type legacyRules struct {
	rules  []legacyRule
	chains map[int]string // by the offset of their first rule
}

// legacyRule is a rule of iptables-legacy.
type legacyRule struct {
	chain  string // "" for any base chain
	to     int    // of a standard target: the offset of the rule to go on with, or a verdict below 0; 0 for another target
	always bool   // no match: a policy, or a rule like one
}

// parseLegacy reads entries (struct ipt_entry, struct ip6t_entry). Each chain
// that is not a base chain begins with an entry with a target called ERROR, that
// has the chain's name (struct xt_error_target). All ends with another, whose
// name is ERROR.
func parseLegacy(f family, entries []byte) legacyRules {
	offsets := 84 + 4 // behind struct ipt_ip and the cache bits, see chainsOf
	if f == ipv6 {
		offsets = 136 + 4
	}
	const nameSize, verdict, errorName = 29, 32, 2 + 29 + 1
	size := (offsets + 2 + 2 + 4 + 16 + 7) &^ 7 // with the offsets, a mark of the kernel's, and two counters of 8 bytes
	l := legacyRules{chains: map[int]string{}}
	chain := ""
	for at := 0; len(entries)-at >= offsets+4; {
		e := entries[at:]
		target := int(binary.NativeEndian.Uint16(e[offsets:]))
		next := int(binary.NativeEndian.Uint16(e[offsets+2:]))
		if next <= 0 || next > len(e) || target+errorName+4 > next {
			break
		}
		name := unix.ByteSliceToString(e[target+2 : target+2+nameSize])
		switch name {
		case "ERROR":
			chain = unix.ByteSliceToString(e[target+errorName : next])
			l.chains[at+next] = chain
		case "":
			to := int(int32(binary.NativeEndian.Uint32(e[target+verdict:])))
			always := target == size && len(bytes.Trim(e[:offsets-4], "\x00")) == 0
			l.rules = append(l.rules, legacyRule{chain: chain, to: to, always: always})
		default:
			l.rules = append(l.rules, legacyRule{chain: chain})
		}
		at += next
	}
	return l
}
