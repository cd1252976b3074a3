package iptables

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

var bothFamilies = Marked{Mark: 0x1000, Addrs: addrs("10.88.0.2", "fd00:88::2")}

const markedRules = `:CNI-ADMIN
-A FORWARD -m comment --comment "cnibox firewall" -j CNIBOX-FORWARD
-A CNIBOX-FORWARD -j CNI-ADMIN
-A CNIBOX-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT
`

func accept(m Marked) func() error { return over(m, (*Backend).Accept) }

func checked(m Marked) func() error { return over(m, (*Backend).CheckAccepts) }

// over opens a connection in the thread in which the rules are made or compared.
func over(m Marked, do func(*Backend, context.Context, Marked) error) func() error {
	return func() error {
		conn, err := nft.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		return do(On(conn, nil), ctx, m)
	}
}

// TestMarked makes the rules once, in the plain program's flavour.
func TestMarked(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		for range 2 {
			must(t, n.try(accept(bothFamilies)))
			must(t, n.try(checked(bothFamilies)))
		}
		for _, f := range families() {
			if got := n.rules(t, f, "filter"); got != markedRules {
				t.Errorf("%s:\n%swant\n%s", f.name, got, markedRules)
			}
		}
		again := bothFamilies
		again.AdminChain = "SITE-ADMIN"
		must(t, n.try(accept(again)))
		must(t, n.try(accept(bothFamilies)))
		if got := n.rules(t, &ipv4, "filter"); strings.Count(got, "-A ") != 4 || !strings.Contains(got, "-A CNIBOX-FORWARD -j SITE-ADMIN\n") ||
			!strings.HasSuffix(got, "-j ACCEPT\n") {
			t.Errorf("with a second admin chain:\n%s", got)
		}
		must(t, n.try(checked(bothFamilies)))
	})
}

// TestMarkedRepairs makes what someone else has removed, and runs no program if
// nothing is missing.
func TestMarkedRepairs(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		program := "iptables-" + n.flavour
		n.restore(t, "filter", "-A FORWARD -s 192.0.2.0/24 -j DROP", "-N CNI-ADMIN", "-A CNI-ADMIN -s 10.88.0.66/32 -j DROP", "-P FORWARD DROP")
		must(t, n.try(accept(bothFamilies)))
		whole := n.rules(t, &ipv4, "filter")
		if !strings.HasPrefix(whole, ":CNI-ADMIN\n-A FORWARD -m comment") || !strings.Contains(whole, "-A CNI-ADMIN -s 10.88.0.66/32 -j DROP\n") {
			t.Errorf("not before the other rules, or the administrator's are gone:\n%s", whole)
		}
		for _, harm := range [][]string{
			{"-D", "FORWARD", "1"}, {"-F", "CNIBOX-FORWARD"}, {"-D", "CNIBOX-FORWARD", "1"}, {"-D", "CNIBOX-FORWARD", "2"},
		} {
			n.MustRun(t, program, harm...)
			wantError(t, n.try(checked(bothFamilies)), "table filter of iptables-"+n.flavour+" (ipv4)", "is not complete")
			must(t, n.try(accept(bothFamilies)))
			if got := n.rules(t, &ipv4, "filter"); got != whole {
				t.Errorf("after %v:\n%swant\n%s", harm, got, whole)
			}
		}
		back := n.hidePrograms(t)
		must(t, n.try(accept(bothFamilies)))
		must(t, n.try(checked(bothFamilies)))
		back()
	})
}

// TestMarkedInBothFlavours has a host on which others use both.
func TestMarkedInBothFlavours(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		for _, fl := range []string{"nft", "legacy"} {
			for _, program := range []string{"iptables-", "ip6tables-"} {
				n.MustRun(t, program+fl, "-P", "FORWARD", "DROP")
			}
		}
		must(t, n.try(accept(bothFamilies)))
		must(t, n.try(checked(bothFamilies)))
		for _, fl := range []string{"nft", "legacy"} {
			n.flavour = fl
			for _, f := range families() {
				if got := n.rules(t, f, "filter"); got != markedRules {
					t.Errorf("%s %s:\n%s", fl, f.name, got)
				}
			}
		}
	})
}

// TestMarkedWithoutPrograms fails only if packets would be dropped.
func TestMarkedWithoutPrograms(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		back := n.hidePrograms(t)
		must(t, n.try(accept(bothFamilies))) // no iptables at all
		back()
		n.restore(t, "filter", "-P FORWARD ACCEPT")
		back = n.hidePrograms(t)
		must(t, n.try(accept(bothFamilies)))
		must(t, n.try(checked(bothFamilies)))
		back()
		if n.flavour == "legacy" {
			return // what it drops can't be seen without a program
		}
		n.restore(t, "filter", "-P FORWARD DROP")
		back = n.hidePrograms(t)
		defer back()
		err := n.try(accept(bothFamilies))
		wantError(t, err, "chain FORWARD of iptables ("+n.flavour+", ipv4) drops", "no program")
		var e *types.Error
		if !errors.As(err, &e) || e.Details == "" {
			t.Errorf("no remedy: %v", err)
		}
	})
}

func TestMarkedTogether(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if err := n.try(accept(bothFamilies)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := n.rules(t, &ipv4, "filter"); got != markedRules {
			t.Errorf("not once:\n%s", got)
		}
	})
}
