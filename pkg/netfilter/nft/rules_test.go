package nft

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// checked is an attachment with an address and a port, and its CHECKs.
type checked struct {
	host  *netlab.Host
	table *Table
}

func newChecked(t *testing.T) checked {
	t.Helper()
	c := checked{host: netlab.NewHost(t)}
	addLink(t, c.host, "cni0")
	c.table = open(t, c.host)
	c.host.Do(func() {
		must(t, c.table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24", "fd00::2/64")))
		must(t, c.table.AddPortMaps(ctx, keyOf("a"), behind("cni0", portMaps(t, "tcp/80=10.88.0.2:80"))))
	})
	return c
}

func (c checked) masquerade() error {
	return c.table.CheckMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24", "fd00::2/64"))
}

func (c checked) ports(t *testing.T) (err error) {
	t.Helper()
	c.host.Do(func() {
		err = c.table.CheckPortMaps(ctx, keyOf("a"), behind("cni0", portMaps(t, "tcp/80=10.88.0.2:80")))
	})
	return err
}

// TestFixedChains compares the counts with those of a ruleset that was just made.
func TestFixedChains(t *testing.T) {
	t.Parallel()
	c := newChecked(t)
	var names []string
	for _, f := range fixedChains {
		names = append(names, f.name)
		uses, err := c.table.conn.Uses(table, f.name)
		if err != nil || uses[0] != f.uses {
			t.Errorf("%s: %v, %v; want %d", f.name, uses, err, f.uses)
		}
	}
	for _, chain := range chains() {
		withParts := slices.Contains([]string{chainPostrouting, chainOptions, chainHostOptions}, chain.Name)
		if withParts == slices.Contains(names, chain.Name) {
			t.Errorf("%s: parts have rules in it: %v, and it is one of %v", chain.Name, withParts, names)
		}
	}
}

func TestCheckFindsEachMissingRule(t *testing.T) {
	t.Parallel()
	c := newChecked(t)
	saved := listing(t, c.host)
	rules, err := c.table.conn.Rules(table, "")
	must(t, err)
	if len(rules) != 2+16+3+2+1+2 {
		t.Fatalf("%d rules", len(rules))
	}
	for i := range rules {
		// The table was loaded anew, so that handles are others.
		now, err := c.table.conn.Rules(table, "")
		must(t, err)
		r := now[i]
		c.host.MustRun(t, "nft", fmt.Sprintf("delete rule inet cnibox %s handle %d", r.Chain, r.Handle))
		masquerade, ports := c.masquerade(), c.ports(t)
		for _, check := range []struct {
			of    string
			err   error
			needs bool
		}{
			{"masquerade", masquerade, r.Chain == chainPostrouting},
			{"ports", ports, !ofPart(r)},
		} {
			if found := check.err != nil && strings.Contains(check.err.Error(), "chain "+r.Chain+" has "); found != check.needs {
				t.Errorf("%s, without a rule of %s: %v", check.of, r.Chain, check.err)
			}
		}
		restore(t, c.host, saved)
	}
	must(t, c.masquerade())
	must(t, c.ports(t))
}

// TestCheckOfChangedRules has rules in our chains that are not ours: they are no
// error, and do not stand in for ours in postrouting.
func TestCheckOfChangedRules(t *testing.T) {
	t.Parallel()
	c := newChecked(t)
	saved := listing(t, c.host)
	for _, tt := range []struct{ do, want string }{
		{"add rule inet cnibox guard_v2 counter", ""},
		{"add rule inet cnibox dnat_v2 counter", ""},
		{"add rule inet cnibox hostoptions_v2 counter", ""},
		{"add rule inet cnibox postrouting_v2 counter", ""},
		{"add chain inet cnibox mine; add rule inet cnibox mine goto dnat_v2", ""},
		{"flush chain inet cnibox postrouting_v2; add rule inet cnibox postrouting_v2 ip saddr @masq_v2_10.88.0.0/24 masquerade", "chain postrouting_v2 has 0 of its 1 rules"},
	} {
		c.host.MustRun(t, "nft", tt.do)
		for of, err := range map[string]error{"masquerade": c.masquerade(), "ports": c.ports(t)} {
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s, after %q: %v; want %q", of, tt.do, err, tt.want)
			}
		}
		restore(t, c.host, saved)
	}
}

// TestCheckBudget counts the messages of a CHECK of what is complete.
func TestCheckBudget(t *testing.T) {
	t.Parallel()
	c := newChecked(t)
	for _, tt := range []struct {
		name  string
		check func() error
		sends int
	}{
		{"masquerade", c.masquerade, 3},                  // what it holds, the elements, postrouting
		{"ports", func() error { return c.ports(t) }, 4}, // and the uses of the other chains
	} {
		before := c.table.conn.Sends
		must(t, tt.check())
		if sends := c.table.conn.Sends - before; sends != tt.sends {
			t.Errorf("%s: %d messages, want %d", tt.name, sends, tt.sends)
		}
	}
}
