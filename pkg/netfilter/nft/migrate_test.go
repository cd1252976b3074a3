package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/test/netlab"
)

// loadV1 gives the host what fill had put into a table of the first version.
func loadV1(t testing.TB, h *netlab.Host) {
	t.Helper()
	addLink(t, h, "cni0")
	saved, err := os.ReadFile("testdata/v1.nft")
	must(t, err)
	restore(t, h, string(saved))
}

// TestMigrationMakesWhatAddMakes compares the ruleset that is made of the first
// version's with that of ADDs.
func TestMigrationMakesWhatAddMakes(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	loadV1(t, h)
	table := open(t, h)
	h.Do(func() {
		if migrated, err := table.migrate(ctx); err != nil || !migrated {
			t.Fatal(migrated, err)
		}
		if migrated, err := table.migrate(ctx); err != nil || migrated {
			t.Error("a second time:", migrated, err)
		}
	})
	fresh := netlab.NewHost(t)
	fill(t, fresh, open(t, fresh))
	if got, want := sortedLines(listing(t, h)), sortedLines(listing(t, fresh)); got != want {
		t.Errorf("migrated:\n%s\nadded:\n%s", listing(t, h), listing(t, fresh))
	}
}

// TestMigration has each verb be the first to meet the first version's table.
func TestMigration(t *testing.T) {
	t.Parallel()
	portsOfA := behind("cni0", portMaps(t,
		"tcp/8080=10.88.0.2:80", "tcp/8080=[fd00:1::2]:80",
		"udp/192.0.2.1:53=10.88.0.2:5353", "sctp/[2001:db8::1]:36412=[fd00:1::2]:36412"))
	portsOfA.MasqAll = true
	addrsOfA := prefixes("10.88.0.2/24", "fd00:1::2/64", "10.9.0.7/32", "fd00:9::7/128", "10.77.1.2/19")
	for name, first := range map[string]func(*Table) error{
		"nothing": func(*Table) error { return nil },
		"ADD ports": func(table *Table) error {
			return table.AddPortMaps(ctx, keyOf("new"), behind("cni0", portMaps(t, "tcp/99=10.88.0.9:80")))
		},
		"ADD the same":     func(table *Table) error { return table.AddPortMaps(ctx, keyOf("a"), portsOfA) },
		"ADD masquerade":   func(table *Table) error { return table.AddMasquerade(ctx, keyOf("new"), prefixes("10.88.0.9/24")) },
		"CHECK ports":      func(table *Table) error { return table.CheckPortMaps(ctx, keyOf("a"), portsOfA) },
		"CHECK masquerade": func(table *Table) error { return table.CheckMasquerade(ctx, keyOf("a"), addrsOfA) },
		"DEL of nothing":   func(table *Table) error { return table.DelMasquerade(ctx, keyOf("never"), nil) },
		"DEL of one":       func(table *Table) error { _, err := table.DelPortMaps(ctx, keyOf("b"), nil); return err },
		"GC":               func(table *Table) error { return table.GCPortMaps(ctx, "other", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			loadV1(t, h)
			table := open(t, h)
			h.Do(func() {
				must(t, netfilter.AllowLocalhost("cni0"))
				must(t, first(table))
				if got := listing(t, h); name != "nothing" && strings.Contains(got, version1) {
					t.Errorf("of the first version there still is:\n%s", got)
				}
				must(t, table.CheckPortMaps(ctx, keyOf("a"), portsOfA))
				must(t, table.CheckMasquerade(ctx, keyOf("a"), addrsOfA))
				if err := table.AddPortMaps(ctx, keyOf("late"), behind("cni0", portMaps(t, "tcp/8080=10.88.0.8:80"))); err == nil {
					t.Error("a port of the first version was given to another one")
				}
				for _, id := range []string{"a", "b", "new"} {
					must(t, table.DelMasquerade(ctx, keyOf(id), nil))
					delPorts(t, table, keyOf(id))
				}
				must(t, table.GCMasquerade(ctx, "net", nil))
			})
			got := listing(t, h)
			if strings.Contains(got, version1) || strings.Contains(got, "net/") || strings.Contains(got, "masq_") {
				t.Errorf("left behind:\n%s", got)
			}
		})
	}
}

// TestMigrationKeepsPortsOpen asks for a port all the time.
func TestMigrationKeepsPortsOpen(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.MustRun(t, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
	n.web.ServeTCP(t, ":80")
	n.peer.ServeTCP(t, ":80")
	n.outside.ServeTCP(t, ":80")
	n.addPorts(t, "web", behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80", "tcp/8080=[fd00:1::2]:80")))
	must(t, n.table.AddMasquerade(ctx, keyOf("web"), prefixes("10.1.0.2/24", "fd00:1::2/64")))
	restore(t, n.Host, asVersion1(listing(t, n.Host)))

	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := n.outside.DialTCP("192.0.2.1:8080", patience); got != "web saw 192.0.2.254" {
				t.Errorf("from outside: %q, %v", got, err)
				return
			}
			if got, err := n.web.DialTCP("192.0.2.254:80", patience); got != "outside saw 192.0.2.1" {
				t.Errorf("to the outside: %q, %v", got, err)
				return
			}
		}
	}()
	n.addPorts(t, "peer", behind("cni0", portMaps(t, "tcp/8081=10.1.0.3:80")))
	if got := listing(t, n.Host); strings.Contains(got, version1) {
		t.Errorf("of the first version there still is:\n%s", got)
	}
	for from, want := range map[*netlab.Namespace]string{
		&n.outside.Namespace: "web saw 192.0.2.254", &n.web.Namespace: "web saw 10.1.0.1", &n.peer.Namespace: "web saw 10.1.0.1",
	} {
		if got := ask(from, "tcp", "192.0.2.1:8080"); got != want {
			t.Errorf("%s: %q, want %q", from.Name(), got, want)
		}
	}
	if got := ask(&n.Namespace, "tcp", "127.0.0.1:8081"); got != "peer saw 10.1.0.1" {
		t.Errorf("the new one: %q", got)
	}
	close(stop)
	<-done
}

// TestManyMigrateOnce has several sockets, each of which is a process to the
// kernel, find the first version's table at once.
func TestManyMigrateOnce(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	loadV1(t, h)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 6 {
		table := open(t, h)
		wg.Go(func() {
			<-start
			if i%2 == 0 {
				_, err := table.DelPortMaps(ctx, keyOf("b"), nil)
				if err != nil {
					t.Error(err)
				}
			}
			m := netfilter.PortMap{Protocol: tcp, HostPort: uint16(9000 + i), Container: netip.MustParseAddrPort("10.88.0.9:80")}
			if err := table.AddPortMaps(ctx, keyOf(fmt.Sprint("c", i)), netfilter.PortMaps{Maps: []netfilter.PortMap{m}}); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	got := listing(t, h)
	if strings.Contains(got, version1) || strings.Contains(got, "net/b/") || strings.Count(got, "chain dnat_v2") != 1 {
		t.Errorf("after all have run:\n%s", got)
	}
	for i := range 6 {
		if !strings.Contains(got, fmt.Sprintf("tcp . %d comment", 9000+i)) {
			t.Errorf("port %d is missing:\n%s", 9000+i, got)
		}
	}
}

// TestEarlierBinaryAtWork has the first version appear again beside ours.
func TestEarlierBinaryAtWork(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	loadV1(t, h)
	table := open(t, h)
	saved, err := os.ReadFile("testdata/v1.nft")
	must(t, err)
	h.Do(func() {
		must(t, table.DelMasquerade(ctx, keyOf("nobody"), nil)) // migrates
		must(t, table.DelMasquerade(ctx, keyOf("a"), nil))
		delPorts(t, table, keyOf("b"))
		must(t, table.AddPortMaps(ctx, keyOf("c"), behind("cni0", portMaps(t, "tcp/81=10.88.0.7:80"))))
	})
	h.Feed(t, string(saved), "nft", "-f", "-")
	h.Do(func() {
		must(t, table.GCPortMaps(ctx, "other", nil))
		must(t, table.CheckPortMaps(ctx, keyOf("c"), behind("cni0", portMaps(t, "tcp/81=10.88.0.7:80")))) // it was first
		must(t, table.DelMasquerade(ctx, keyOf("a"), nil))
		for _, id := range []string{"a", "b", "c"} {
			delPorts(t, table, keyOf(id))
		}
		must(t, table.GCMasquerade(ctx, "net", nil))
	})
	if got := listing(t, h); strings.Contains(got, version1) || strings.Contains(got, "net/") {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestMigrationSeesCancelledContext(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	loadV1(t, h)
	before := listing(t, h)
	table := open(t, h)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	h.Do(func() {
		if err := table.DelMasquerade(cancelled, keyOf("a"), nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if got := listing(t, h); got != before {
		t.Errorf("changed:\n%s", got)
	}
}
