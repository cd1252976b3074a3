package nft

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// installed is a rule in the kernel.
type installed struct {
	chain  string
	handle uint64
	set    string // the last set that it looks something up in
}

func (r installed) ofSubnet() bool { return strings.HasPrefix(r.set, subnetPrefix) }

// rules lists the rules of our table.
func (t *Table) rules() ([]installed, error) {
	for try := 1; ; try++ {
		var list []installed
		b := &netlink.Batch{}
		get(b, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, "list the rules of table inet "+TableName, func() {
			b.String(unix.NFTA_RULE_TABLE, TableName)
		})
		err := t.conn.Do(b, func(m netlink.Message) {
			if r, ok := parseRule(attributes(m)); ok {
				list = append(list, r)
			}
		})
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return list, nil
		case !errors.Is(err, netlink.ErrInterrupted):
			return nil, err
		case try == tries:
			return nil, contended("list rules", err)
		}
	}
}

func parseRule(attrs []byte) (r installed, ok bool) {
	handle := netlink.Attr(attrs, unix.NFTA_RULE_HANDLE)
	if text(netlink.Attr(attrs, unix.NFTA_RULE_TABLE)) != TableName || len(handle) != 8 {
		return r, false
	}
	r.chain = text(netlink.Attr(attrs, unix.NFTA_RULE_CHAIN))
	r.handle = binary.BigEndian.Uint64(handle)
	netlink.Attrs(netlink.Attr(attrs, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
		if text(netlink.Attr(e, unix.NFTA_EXPR_NAME)) == "lookup" {
			r.set = text(netlink.Attr(netlink.Attr(e, unix.NFTA_EXPR_DATA), unix.NFTA_LOOKUP_SET))
		}
	})
	return r, true
}

func text(v []byte) string { return strings.TrimRight(string(v), "\x00") }

// checkRules makes sure that the ruleset, and the subnets of the claims, have
// their rules: `nft flush table` takes them and leaves the elements.
func (t *Table) checkRules(claims []claim) error {
	rules, err := t.rules()
	if err != nil {
		return err
	}
	count, looksUp := map[string]int{}, map[string]bool{}
	for _, r := range rules {
		looksUp[r.set] = true
		if !r.ofSubnet() {
			count[r.chain]++
		}
	}
	for _, c := range chains() {
		if count[c.name] < len(c.rules) {
			return mismatch("chain %s has %d of its %d rules", c.name, count[c.name], len(c.rules))
		}
	}
	for _, c := range claims {
		if c.record.kind&kindAddress == 0 {
			continue
		}
		if s := subnetOf(c.record.prefix()); !looksUp[s.set.name] {
			return mismatch("chain %s has no rule for set %s", chainPostrouting, s.set.name)
		}
	}
	return nil
}
