package nftables

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Chain is a chain with its rules. One without a kind is entered from others.
type Chain struct {
	Name     string
	Kind     string // "filter" or "nat"
	Hook     uint32
	Priority int32
	Rules    []Rule
}

// Rule is the expressions of a rule.
type Rule []Expr

// Hooks of families ip, ip6, inet and bridge (linux/netfilter.h).
const (
	HookPrerouting  = 0
	HookInput       = 1
	HookForward     = 2
	HookOutput      = 3
	HookPostrouting = 4
)

// CreateChain creates a chain with its rules; one that is there is EEXIST.
func (tx *Transaction) CreateChain(at Stage, t Table, c Chain) {
	tx.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_EXCL, t.Family, at, "create chain "+c.Name, func(b *netlink.Batch) {
		b.String(unix.NFTA_CHAIN_TABLE, t.Name)
		b.String(unix.NFTA_CHAIN_NAME, c.Name)
		if c.Kind == "" {
			return
		}
		b.Nest(unix.NFTA_CHAIN_HOOK, func() {
			b.BE32(unix.NFTA_HOOK_HOOKNUM, c.Hook)
			b.BE32(unix.NFTA_HOOK_PRIORITY, uint32(c.Priority))
		})
		b.String(unix.NFTA_CHAIN_TYPE, c.Kind)
	})
	for _, r := range c.Rules {
		tx.AppendRule(at, t, c.Name, r)
	}
}

// RemoveChain removes a chain with its rules. One that is jumped to is EBUSY.
func (tx *Transaction) RemoveChain(at Stage, t Table, name string) {
	tx.FlushChain(at, t, name)
	tx.add(unix.NFT_MSG_DELCHAIN, 0, t.Family, at, "remove chain "+name, func(b *netlink.Batch) {
		b.String(unix.NFTA_CHAIN_TABLE, t.Name)
		b.String(unix.NFTA_CHAIN_NAME, name)
	})
}

// FlushChain removes the rules of a chain.
func (tx *Transaction) FlushChain(at Stage, t Table, name string) {
	tx.add(unix.NFT_MSG_DELRULE, 0, t.Family, at, "flush chain "+name, func(b *netlink.Batch) {
		b.String(unix.NFTA_RULE_TABLE, t.Name)
		b.String(unix.NFTA_RULE_CHAIN, name)
	})
}

// AppendRule adds a rule to the end of a chain.
func (tx *Transaction) AppendRule(at Stage, t Table, chain string, r Rule) {
	tx.addRule(at, t, chain, unix.NLM_F_APPEND, r)
}

// InsertRule adds a rule to the beginning of a chain.
func (tx *Transaction) InsertRule(at Stage, t Table, chain string, r Rule) {
	tx.addRule(at, t, chain, 0, r)
}

func (tx *Transaction) addRule(at Stage, t Table, chain string, where uint16, r Rule) {
	tx.add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|where, t.Family, at, "add a rule to chain "+chain, func(b *netlink.Batch) {
		b.String(unix.NFTA_RULE_TABLE, t.Name)
		b.String(unix.NFTA_RULE_CHAIN, chain)
		b.Nest(unix.NFTA_RULE_EXPRESSIONS, func() {
			for _, e := range r {
				b.Nest(unix.NFTA_LIST_ELEM, func() {
					b.String(unix.NFTA_EXPR_NAME, e.name)
					b.Nest(unix.NFTA_EXPR_DATA, func() { e.data(b) })
				})
			}
		})
	})
}

// RemoveRule removes a rule.
func (tx *Transaction) RemoveRule(at Stage, t Table, r Installed) {
	tx.add(unix.NFT_MSG_DELRULE, 0, t.Family, at, "remove a rule from chain "+r.Chain, func(b *netlink.Batch) {
		b.String(unix.NFTA_RULE_TABLE, t.Name)
		b.String(unix.NFTA_RULE_CHAIN, r.Chain)
		b.BE64(unix.NFTA_RULE_HANDLE, r.Handle)
	})
}

// Installed is a rule in the kernel.
type Installed struct {
	Chain   string
	Handle  uint64
	Set     string // the last set that it looks something up in
	Jump    string // the chain that it jumps or goes to
	Comment string

	// Destination is the one address that the rule is for packets to, and DNAT
	// the one that it makes connections go to; the zero Addr if there is none.
	Destination, DNAT netip.Addr
}

// Rules lists the rules of a chain, of all the table's chains if chain is "". A
// table or chain that is not there has none.
func (c *Conn) Rules(t Table, chain string) ([]Installed, error) {
	var list []Installed
	err := c.dump(t.Family, unix.NFT_MSG_GETRULE, "list the rules of table "+t.String(), func(b *netlink.Batch) {
		list = nil
		b.String(unix.NFTA_RULE_TABLE, t.Name)
		if chain != "" {
			b.String(unix.NFTA_RULE_CHAIN, chain)
		}
	}, func(m netlink.Message) {
		r, ok := parseRule(t, attributes(m))
		if ok && (chain == "" || r.Chain == chain) {
			list = append(list, r)
		}
	})
	return list, err
}

func parseRule(t Table, attrs []byte) (r Installed, ok bool) {
	handle := netlink.Attr(attrs, unix.NFTA_RULE_HANDLE)
	if text(netlink.Attr(attrs, unix.NFTA_RULE_TABLE)) != t.Name || len(handle) != 8 {
		return r, false
	}
	r.Chain = text(netlink.Attr(attrs, unix.NFTA_RULE_CHAIN))
	r.Handle = binary.BigEndian.Uint64(handle)
	r.Comment = parseComment(netlink.Attr(attrs, unix.NFTA_RULE_USERDATA))
	var a addressReader
	netlink.Attrs(netlink.Attr(attrs, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
		name, data := text(netlink.Attr(e, unix.NFTA_EXPR_NAME)), netlink.Attr(e, unix.NFTA_EXPR_DATA)
		a.read(name, data)
		switch name {
		case "lookup":
			r.Set = text(netlink.Attr(data, unix.NFTA_LOOKUP_SET))
		case "immediate":
			verdict := netlink.Attr(netlink.Attr(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
			if to := text(netlink.Attr(verdict, unix.NFTA_VERDICT_CHAIN)); to != "" {
				r.Jump = to
			}
		}
	})
	r.Destination, r.DNAT = a.destination, a.dnat
	return r, true
}

// Chains lists the names of a table's chains that begin with prefix.
func (c *Conn) Chains(t Table, prefix string) ([]string, error) {
	var names []string
	err := c.dump(t.Family, unix.NFT_MSG_GETCHAIN, "list the chains of table "+t.String(), func(b *netlink.Batch) {
		names = nil
		b.String(unix.NFTA_CHAIN_TABLE, t.Name)
	}, func(m netlink.Message) {
		attrs := attributes(m)
		name := text(netlink.Attr(attrs, unix.NFTA_CHAIN_NAME))
		if text(netlink.Attr(attrs, unix.NFTA_CHAIN_TABLE)) == t.Name && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	})
	return names, err
}

// Uses tells how often each of some chains is used: how many rules it has, and
// how many jumps to it there are in others; 0 for a chain that is not there.
// Unlike in a list, what a transaction has changed so far counts while it is
// still under way, and may yet be refused.
//
// It is one message to the kernel, and 120 bytes from it for each chain, where a
// list of its rules has 400 for each rule.
func (c *Conn) Uses(t Table, chains ...string) ([]uint32, error) {
	uses := make([]uint32, len(chains))
	b := &netlink.Batch{}
	for _, name := range chains {
		get(b, t.Family, unix.NFT_MSG_GETCHAIN, 0, "look up chain "+name, func() {
			b.String(unix.NFTA_CHAIN_TABLE, t.Name)
			b.String(unix.NFTA_CHAIN_NAME, name)
		})
	}
	err := c.Do(b, func(m netlink.Message) {
		if v := netlink.Attr(attributes(m), unix.NFTA_CHAIN_USE); len(v) == 4 {
			uses[m.Index] = binary.BigEndian.Uint32(v)
		}
	})
	if notThere(err) {
		err = nil
	}
	return uses, err
}

func text(v []byte) string { return strings.TrimRight(string(v), "\x00") }
