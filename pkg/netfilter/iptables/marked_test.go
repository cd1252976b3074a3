package iptables

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

var bothFamilies = Marked{Mark: 0x1000, Addrs: addrs("10.88.0.2", "fd00:88::2")}

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

// TestMarkedRepairs makes the rules once, makes what someone else has removed, and runs no program if nothing is missing.
func TestMarkedRepairs(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		program := "iptables-" + n.flavour
		n.restore(t, "filter", "-A FORWARD -s 192.0.2.0/24 -j DROP", "-N CNI-ADMIN", "-A CNI-ADMIN -s 10.88.0.66/32 -j DROP", "-P FORWARD DROP")
		var together sync.WaitGroup
		for range 6 {
			together.Go(func() {
				if err := n.try(accept(bothFamilies)); err != nil {
					t.Error(err)
				}
			})
		}
		together.Wait()
		whole := n.rules(t, &ipv4, "filter")
		same(t, "rules", whole, `:CNI-ADMIN
-A FORWARD -m comment --comment "cnibox firewall" -j CNIBOX-FORWARD
-A FORWARD -s 192.0.2.0/24 -j DROP
-A CNI-ADMIN -s 10.88.0.66/32 -j DROP
-A CNIBOX-FORWARD -j CNI-ADMIN
-A CNIBOX-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT
`)
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

// TestMarkedInBothFlavours has somebody begin to drop packets with the other flavour.
func TestMarkedInBothFlavours(t *testing.T) {
	n := newNode(t, "nft")
	must(t, n.try(accept(bothFamilies)))
	n.MustRun(t, "iptables-legacy", "-P", "FORWARD", "DROP")
	wantError(t, n.try(checked(bothFamilies)), "table filter of iptables-legacy (ipv4)", "is not complete")
	must(t, n.try(accept(bothFamilies)))
	must(t, n.try(checked(bothFamilies)))
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
