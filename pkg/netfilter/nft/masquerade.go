package nft

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var _ netfilter.Masquerader = (*Conn)(nil)

// AddMasquerade implements netfilter.Masquerader.
func (c *Conn) AddMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return c.host().hold(ctx, ownerOf(key, useMasquerade), addressClaims(addrs), nil)
}

// DelMasquerade implements netfilter.Masquerader.
func (c *Conn) DelMasquerade(ctx context.Context, key plugin.Key, _ []netip.Prefix) error {
	_, _, err := c.host().release(ctx, ownerOf(key, useMasquerade))
	return err
}

// CheckMasquerade implements netfilter.Masquerader.
func (c *Conn) CheckMasquerade(_ context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return c.host().check(ownerOf(key, useMasquerade), addressClaims(addrs))
}

// GCMasquerade implements netfilter.Masquerader. It also removes what is there for
// subnets that have no address left.
func (c *Conn) GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	t := c.host()
	return errors.Join(t.collect(ctx, network, useMasquerade, valid), t.collectParts(ctx))
}

func addressClaims(addrs []netip.Prefix) []claim {
	var claims []claim
	for _, p := range addrs {
		r := record{kind: kindAddress, link: noLink, addr: p.Addr(), port: uint16(p.Bits())}
		if !slices.ContainsFunc(claims, func(c claim) bool { return c.record.addr == r.addr }) {
			claims = append(claims, claim{record: r})
		}
	}
	return claims
}

// masqueradeSet begins the names of subnets' sets and chains.
const masqueradeSet = "masq" + version + "_"

// subnet is the part of the ruleset that masquerades the addresses of one network:
//
//	set masq_v1_10.88.0.0/24 { type ipv4_addr }
//	chain masq_v1_10.88.0.0/24 {
//		ip saddr @masq_v1_10.88.0.0/24 ip daddr != 10.88.0.0/24 ip daddr != 224.0.0.0/4 masquerade
//	}
//
// Addresses without a network around them share one for each family, with the name
// single4 or single6; network is the zero Prefix then.
func (t *table) subnet(f *family, network netip.Prefix) part {
	name := masqueradeSet + "single" + f.digit
	if network.IsValid() {
		name = masqueradeSet + strings.ReplaceAll(network.String(), ":", "-") // nft's names have no colons
	}
	set := &nftables.Set{Table: &t.table, Name: name, KeyType: f.addr, HasTimeout: true}
	r := words(f.is(), in(set, f.src()))
	if network.IsValid() {
		r = words(r, compareNet(f.dst(), expr.CmpOpNeq, network))
	}
	r = words(r, compareNet(f.dst(), expr.CmpOpNeq, f.multicast), masquerade())
	return part{set: set, chain: chain{name: name, rules: []rule{r}}, from: chainSubnets}
}

// subnetOf returns the subnet that an address with its prefix length is in.
func (t *table) subnetOf(p netip.Prefix) part {
	if p.IsSingleIP() {
		return t.subnet(familyOf(p.Addr()), netip.Prefix{})
	}
	return t.subnet(familyOf(p.Addr()), p.Masked())
}

// subnetNamed returns the subnet that has a set of that name.
func (t *table) subnetNamed(set string) (part, bool) {
	text, ok := strings.CutPrefix(set, masqueradeSet)
	if !ok {
		return part{}, false
	}
	for _, f := range families() {
		if text == "single"+f.digit {
			return t.subnet(f, netip.Prefix{}), true
		}
	}
	network, err := netip.ParsePrefix(strings.ReplaceAll(text, "-", ":"))
	if err != nil {
		return part{}, false
	}
	return t.subnetOf(network), true
}

// collectParts removes the parts whose sets are empty.
func (t *table) collectParts(ctx context.Context) error {
	if parts, err := t.emptyParts(); err != nil || len(parts) == 0 {
		return err
	}
	return t.change(ctx, "remove empty sets", func() error {
		parts, err := t.emptyParts()
		if err != nil || len(parts) == 0 {
			return err
		}
		from := &nftables.Chain{Table: &t.table, Name: parts[0].from}
		rules, err := t.conn.GetRules(&t.table, from)
		if err != nil {
			return explain("list the rules of chain "+from.Name, err)
		}
		t.removeRules(slices.DeleteFunc(rules, func(r *nftables.Rule) bool {
			return !slices.ContainsFunc(parts, func(p part) bool { return p.chain.name == targetOf(r.Exprs) })
		}))
		for _, p := range parts {
			chain := &nftables.Chain{Table: &t.table, Name: p.chain.name}
			t.conn.FlushChain(chain)
			t.conn.DelChain(chain)
			t.conn.DelSet(p.set)
		}
		return t.conn.commit("remove empty sets of table " + t.String())
	})
}

func (t *table) emptyParts() ([]part, error) {
	parts, err := t.parts()
	var empty []part
	for _, p := range parts {
		elements, err := t.conn.GetSetElements(p.set)
		if err != nil {
			return nil, explain("list set "+p.set.Name, err)
		}
		if !slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return e.Timeout == 0 }) {
			empty = append(empty, p)
		}
	}
	return empty, err
}
