package nft

import (
	"fmt"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// group is what published ports have in common that share their sets. Plain
// ones, without conditions and marked by the default bit, have theirs in the
// ruleset; others get a part of their own:
//
//	# markMasqBit 14, published on all addresses
//	set snat_v2_all4_bit14 { type ifname . inet_proto . inet_service }
//	set masqall_v2_all4_bit14 { type inet_proto . inet_service }
//	chain mark_v2_all4_bit14 {
//		meta nfproto ipv4 iifname . meta l4proto . th dport @snat_v2_all4_bit14 meta mark set meta mark | 0x00004000
//		ip saddr 127.0.0.0/8 oifname . meta l4proto . th dport @snat_v2_all4_bit14 meta mark set meta mark | 0x00004000
//		meta nfproto ipv4 meta l4proto . th dport @masqall_v2_all4_bit14 meta mark set meta mark | 0x00004000
//	}
//	chain masquerade_v2_all4_bit14 { meta mark & 0x00004000 == 0x00004000 masquerade }
//	chain options_v2 { …; meta nfproto ipv4 jump mark_v2_all4_bit14 }
//	chain postrouting_v2 { …; ct status dnat jump masquerade_v2_all4_bit14 }
//
//	# conditionsV4 ["ip", "saddr", "!=", "10.0.0.0/8"]
//	set if_v2_all4_if5b1c9e02 { type inet_proto . inet_service }
//	set snat_v2_all4_if5b1c9e02 { type ifname . inet_proto . inet_service }
//	set masqall_v2_all4_if5b1c9e02 { type inet_proto . inet_service }
//	set gone_v2_all4_if5b1c9e02 { type inet_proto . inet_service }
//	chain dnat_v2_all4_if5b1c9e02 {
//		ip saddr 10.0.0.0/8 return
//		… the marks
//		meta nfproto ipv4 meta l4proto . th dport != @gone_v2_all4_if5b1c9e02 dnat ip to meta l4proto . th dport map @ifports4_v2
//	}
//	chain options_v2 { meta nfproto ipv4 meta l4proto . th dport @if_v2_all4_if5b1c9e02 jump dnat_v2_all4_if5b1c9e02; … }
//
// Conditions come before marks: a connection whose port is published by one
// attachment on conditions, and by another one without, must not get the mark of
// the latter when it goes to the former. All attachments with the same
// conditions share a group. All ports with conditions are in one map, so that
// two attachments can't have the same one with different conditions.
type group struct {
	family     *family
	bound      bool // published on one address of the host
	bit        uint8
	conditions uint32 // conditions.id; 0: none
}

// portSets are the sets that a group's ports are in.
type portSets struct {
	ports, snat, masqAll, gone *nftables.Set

	gate *nftables.Set // nil without conditions
}

func plain(f *family, bound bool) group { return group{family: f, bound: bound, bit: defaultBit} }

func (g group) isPlain() bool { return g.bit == defaultBit && g.conditions == 0 }

// id is that of the group's part.
func (g group) id() string {
	id := "all" + g.family.digit
	if g.bound {
		id = "host" + g.family.digit
	}
	if g.conditions != 0 {
		id += fmt.Sprintf("_if%08x", g.conditions)
	}
	if g.bit != defaultBit {
		id += fmt.Sprintf("_bit%d", g.bit)
	}
	return id
}

func (g group) sets() portSets {
	common := g.family.published(g.bound)
	if g.isPlain() {
		return portSets{ports: &common.ports, snat: &common.snat, masqAll: &common.masqAll, gone: &common.gone}
	}
	id := g.id()
	s := portSets{
		ports:   &common.ports,
		snat:    &nftables.Set{Table: table, Name: partName(partSNAT, id), Key: common.snat.Key, Expiring: true},
		masqAll: &nftables.Set{Table: table, Name: partName(partMasqAll, id), Key: common.masqAll.Key, Expiring: true},
		gone:    &common.gone,
	}
	if g.conditions != 0 {
		s.ports = &common.conditional
		s.gate = &nftables.Set{Table: table, Name: partName(partIf, id), Key: common.ports.Key, Expiring: true}
		s.gone = &nftables.Set{Table: table, Name: partName(partGone, id), Key: common.ports.Key, Expiring: true}
	}
	return s
}

// port loads what the keys of the group's maps are about.
func (g group) port() []nftables.Load {
	if g.bound {
		return []nftables.Load{g.family.dst(), nftables.L4Protocol(), nftables.DstPort()}
	}
	return []nftables.Load{nftables.L4Protocol(), nftables.DstPort()}
}

// rules mark connections to the group's ports that are to be masqueraded, and
// send all to the containers.
func (g group) rules() []nftables.Rule {
	sets := g.sets()
	toContainer := nftables.MakeRule(is(g.family), nftables.InBut(sets.ports, sets.gone, g.port()...), nftables.DNAT(g.family.nfproto, g.family.addr))
	return append(g.markRules(), toContainer)
}

func (g group) markRules() []nftables.Rule {
	sets := g.sets()
	setMark := nftables.SetMark(1 << g.bit)
	by := func(link nftables.Load) []nftables.Expr {
		return nftables.In(sets.snat, append([]nftables.Load{link}, g.port()...)...)
	}
	rules := []nftables.Rule{nftables.MakeRule(is(g.family), by(nftables.InLink()), setMark)}
	if g.family == &ipv4 {
		rules = append(rules, nftables.MakeRule(isIn(g.family, g.family.src(), loopback4()), by(nftables.OutLink()), setMark))
	}
	return append(rules, nftables.MakeRule(is(g.family), nftables.In(sets.masqAll, g.port()...), setMark))
}

// part returns the group's part of the ruleset; the conditions are its own.
func (g group) part(c conditions) part {
	p, sets := part{id: g.id()}, g.sets()
	enter := entry{chain: chainOptions}
	if g.bound {
		enter.chain = chainHostOptions
	}
	if sets.gate == nil {
		mark := partName(partMark, p.id)
		p.sets = []nftables.Set{*sets.snat, *sets.masqAll}
		p.chains = []nftables.Chain{{Name: mark, Rules: g.markRules()}}
		enter.rule = nftables.MakeRule(is(g.family), nftables.Jump(mark))
	} else {
		p.sets = []nftables.Set{*sets.gate, *sets.snat, *sets.masqAll, *sets.gone}
		p.chains = c.chains(g.family, p.id, g.rules())
		enter.first = true
		enter.rule = nftables.MakeRule(is(g.family), nftables.In(sets.gate, g.port()...), nftables.Jump(partName(partDNAT, p.id)))
	}
	p.entries = []entry{enter}
	if g.bit != defaultBit {
		masquerade := partName(partMasquerade, p.id)
		p.chains = append(p.chains, nftables.Chain{Name: masquerade, Rules: []nftables.Rule{nftables.MakeRule(isMarked(g.bit), nftables.Masquerade())}})
		p.entries = append(p.entries, entry{chain: chainPostrouting, rule: nftables.MakeRule(wasDNATed(), nftables.Jump(masquerade))})
	}
	return p
}
