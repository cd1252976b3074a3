package iptables

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// topNAT is what port maps share in table nat, without the entries.
const (
	topChains = ":CNI-HOSTPORT-DNAT\n:CNI-HOSTPORT-MASQ\n:CNI-HOSTPORT-SETMARK\n"
	topJumps  = "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
		"-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
		"-A POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ\n"
	topMarks = "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE\n" +
		"-A CNI-HOSTPORT-SETMARK -m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x2000/0x2000\n"
)

// sorted puts lines in an order that does not depend on the flavour.
func sorted(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func (n *node) portmap(t testing.TB, id string, ports netfilter.PortMaps) {
	t.Helper()
	n.do(t, func() error { return New().AddPortMaps(ctx, keyOf(id), ports) })
}

func (n *node) unmap(t testing.TB, key plugin.Key) []netfilter.PortMap {
	t.Helper()
	var maps []netfilter.PortMap
	n.do(t, func() (err error) {
		maps, err = New().DelPortMaps(ctx, key, nil)
		return err
	})
	return maps
}

func TestPortMaps(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		ports := publish(t, "tcp/8080=10.88.0.2:80", "udp/192.0.2.1:53=10.88.0.2:53", "tcp/8080=[fd00::2]:80")
		ports.Conditions4 = []string{"!", "-s", "192.0.2.0/24"}
		key := keyOf("a")
		for range 3 {
			n.portmap(t, "a", ports)
		}
		var want strings.Builder
		want.WriteString(topChains + topJumps + topMarks + ":" + chainOf(PortMapping, "a") + "\n")
		for _, r := range ofFamily(&ipv4, PortMaps(key, ports).own) {
			spec := r.spec
			if strings.Contains(spec, "! -s") { // as iptables-save prints it
				spec = "! -s 192.0.2.0/24 " + strings.Replace(spec, " ! -s 192.0.2.0/24", "", 1)
			}
			want.WriteString("-A " + r.chain + " " + spec + "\n")
		}
		same(t, "nat", sorted(n.rules(t, &ipv4, "nat")), sorted(want.String()))
		if got := n.rules(t, &ipv6, "nat"); !strings.Contains(got, "--to-destination [fd00::2]:80") {
			t.Errorf("nat of IPv6:\n%s", got)
		}
		n.do(t, func() error { return New().CheckPortMaps(ctx, key, ports) })
		n.restore(t, "nat", "-F CNI-HOSTPORT-DNAT")
		wantError(t, n.try(func() error { return New().CheckPortMaps(ctx, key, ports) }), "lacks the rule of net/a/eth0", "-A CNI-HOSTPORT-DNAT -p tcp")
		n.portmap(t, "a", ports)
		n.do(t, func() error { return New().CheckPortMaps(ctx, key, ports) })

		removed := n.unmap(t, key)
		if diff := cmp.Diff(fmt.Sprint(ports.Maps), fmt.Sprint(removed)); diff != "" {
			t.Errorf("removed (-want +got):\n%s", diff)
		}
		same(t, "nat after DEL", sorted(n.rules(t, &ipv4, "nat")+n.kept(t)), sorted(topChains+topJumps+topMarks))

		back := n.hidePrograms(t)
		if removed := n.unmap(t, key); removed != nil {
			t.Errorf("removed %v once more", removed)
		}
		n.do(t, func() error { return New().GCPortMaps(ctx, "net", nil) })
		back()
	})
}

// The order in the container's chain matters: marks come before what redirects.
func TestPortMapsRepaired(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		ports := publish(t, "tcp/8080=10.88.0.2:80", "tcp/8081=10.88.0.2:81")
		n.portmap(t, "a", ports)
		want := n.rules(t, &ipv4, "nat")
		chain := chainOf(PortMapping, "a")
		for _, lines := range [][]string{
			{"-F PREROUTING"}, {"-F " + markChain}, {"-F " + chain}, {"-F"}, {"-F", "-X"},
			{"-D " + chain + " -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j " + markChain},
		} {
			n.restore(t, "nat", lines...)
			n.portmap(t, "a", ports)
			same(t, strings.Join(lines, "; "), sorted(n.rules(t, &ipv4, "nat")), sorted(want))
			if got := n.rules(t, &ipv4, "nat"); strings.Index(got, "127.0.0.1/32 -p tcp -m tcp --dport 8080") > strings.Index(got, "--dport 8080 -j DNAT") {
				t.Errorf("%v: a mark comes too late:\n%s", lines, got)
			}
		}
	})
}

func TestPortMapOptions(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.restore(t, "nat", "-N KUBE-MARK-MASQ")
		ports := publish(t, "tcp/8080=10.88.0.2:80")
		ports.SetMarkChain = "KUBE-MARK-MASQ"
		n.portmap(t, "a", ports)
		if got := n.rules(t, &ipv4, "nat"); strings.Contains(got, markChain) || !strings.Contains(got, "-s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ") {
			t.Errorf("with a chain of someone else:\n%s", got)
		}
		other := publish(t, "tcp/9090=10.88.0.3:80")
		other.MarkBit, other.MasqAll = 31, true
		n.portmap(t, "b", other)
		got := n.rules(t, &ipv4, "nat")
		for _, want := range []string{"-j MARK --set-xmark 0x80000000/0x80000000", "-p tcp -m tcp --dport 9090 -j " + markChain} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		n.portmap(t, "c", publish(t, "tcp/9091=10.88.0.4:80")) // another bit beside it
		if got := n.rules(t, &ipv4, "nat"); !strings.Contains(got, "0x2000/0x2000 -j MASQUERADE") || !strings.Contains(got, "0x80000000/0x80000000 -j MASQUERADE") {
			t.Errorf("two bits:\n%s", got)
		}
		missing := publish(t, "tcp/7070=10.88.0.5:80")
		missing.SetMarkChain = "NOT-THERE"
		before := n.rules(t, &ipv4, "nat")
		err := n.try(func() error { return New().AddPortMaps(ctx, keyOf("d"), missing) })
		wantError(t, err, "NOT-THERE", "failed")
		same(t, "nat after a failure", n.rules(t, &ipv4, "nat"), before)
		if kept := n.kept(t); strings.Contains(kept, "7070") {
			t.Errorf("left over: %s", kept)
		}
	})
}

func TestPortTaken(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.portmap(t, "a", publish(t, "tcp/8080=10.88.0.2:80", "tcp/192.0.2.1:81=10.88.0.2:80"))
		before := n.rules(t, &ipv4, "nat") + n.kept(t)
		for _, m := range []string{"tcp/8080=10.88.0.3:80", "tcp/192.0.2.1:81=10.88.0.3:80"} {
			host, _, _ := strings.Cut(m, "=")
			err := n.try(func() error { return New().AddPortMaps(ctx, keyOf("b"), publish(t, "tcp/9999=10.88.0.3:1", m)) })
			wantError(t, err, "host port "+host+" is already published by net/a/eth0")
			same(t, "after a conflict", n.rules(t, &ipv4, "nat")+n.kept(t), before)
		}
		// Not the same port.
		n.portmap(t, "c", publish(t, "udp/8080=10.88.0.3:80", "tcp/81=10.88.0.3:80", "tcp/8080=[fd00::3]:80"))
		n.unmap(t, keyOf("a"))
		n.portmap(t, "b", publish(t, "tcp/8080=10.88.0.3:80"))
		n.unmap(t, keyOf("a")) // late, and not its port any more
		n.do(t, func() error { return New().CheckPortMaps(ctx, keyOf("b"), publish(t, "tcp/8080=10.88.0.3:80")) })
		wantError(t, n.try(func() error { return New().AddPortMaps(ctx, keyOf("d"), publish(t, "tcp/8080=10.88.0.4:80")) }), "net/b/eth0")
	})
}

// A port is free when its owner's rules are gone, its address is another's, or
// its namespace is gone.
func TestPortTakenOver(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.portmap(t, "a", publish(t, "tcp/8080=10.88.0.2:80"))
		n.portmap(t, "b", publish(t, "tcp/8080=10.88.0.2:81"))
		if got := n.rules(t, &ipv4, "nat"); strings.Contains(got, chainOf(PortMapping, "a")) {
			t.Errorf("a has lost its address, and still has a port:\n%s", got)
		}
		n.unmap(t, keyOf("a"))
		n.restore(t, "nat", "-F", "-X")
		n.portmap(t, "c", publish(t, "tcp/8080=10.88.0.3:80"))
		n.unmap(t, keyOf("b"))
		n.do(t, func() error { return New().CheckPortMaps(ctx, keyOf("c"), publish(t, "tcp/8080=10.88.0.3:80")) })
		n.unmap(t, keyOf("c"))
		same(t, "left over", n.kept(t), "")

		n.portmap(t, "a", publish(t, "tcp/8080=10.88.0.2:80"))
		pod := n.NewPod(t, "pod")
		const results = "/run/another/results"
		cached := `{"networkName":"net","containerId":"a","ifName":"eth0","netns":"` + pod.Path() + `"}`
		n.Do(func() {
			must(t, os.MkdirAll(results, 0o755))
			must(t, os.WriteFile(results+"/net-a-eth0", []byte(cached), 0o644))
		})
		ports := publish(t, "tcp/8080=10.88.0.3:80")
		ports.Results = results
		add := func() error { return New().AddPortMaps(ctx, keyOf("b"), ports) }
		wantError(t, n.try(add), "by net/a/eth0", pod.Path()+" is there")
		pod.Delete(t)
		n.do(t, add)
		if got := n.rules(t, &ipv4, "nat"); strings.Contains(got, chainOf(PortMapping, "a")) {
			t.Errorf("a is gone, and still has a port:\n%s", got)
		}
	})
}

// Ports of two interfaces, whose rules look alike to ip6tables-legacy.
func TestPortMapsTwoInterfaces(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		one := publish(t, "tcp/8080=10.88.0.2:80", "tcp/8081=[fd00::2]:80", "tcp/8082=[fd00::2]:80")
		two := publish(t, "tcp/8090=10.88.0.3:80", "tcp/8091=[fd00::3]:80", "tcp/8092=[fd00::3]:80")
		eth0, eth1 := keyOf("a"), second("a", "eth1")
		check := func(key plugin.Key, ports netfilter.PortMaps) func() error {
			return func() error { return New().CheckPortMaps(ctx, key, ports) }
		}
		n.portmap(t, "a", one)
		alone := n.both(t, "nat")
		for range 2 {
			n.do(t, func() error { return New().AddPortMaps(ctx, eth1, two) })
			n.do(t, check(eth0, one))
			n.do(t, check(eth1, two))
		}
		both := n.both(t, "nat")
		n.unmap(t, eth1)
		same(t, "one left", sorted(n.both(t, "nat")), sorted(alone))
		wantError(t, n.try(check(eth1, two)), "lacks the rule")
		n.do(t, func() error { return New().AddPortMaps(ctx, eth1, two) })
		same(t, "both again", sorted(n.both(t, "nat")), sorted(both))
		n.unmap(t, eth0)
		n.do(t, check(eth1, two))
		wantError(t, n.try(check(eth0, one)), "lacks the rule")
		n.Feed(t, "*nat\n-F "+PortMapping.chains(eth1)[0]+"\nCOMMIT\n", "ip6tables-"+n.flavour+"-restore", "--noflush")
		n.do(t, func() error { return New().AddPortMaps(ctx, eth1, two) }) // repairs
		n.do(t, check(eth1, two))
		n.unmap(t, eth1)
		same(t, "left over", n.kept(t)+containers(n.both(t, "nat")), "")
	})
}

func TestPortMapsConcurrently(t *testing.T) {
	const containers = 64
	eachFlavour(t, func(t *testing.T, n *node) {
		all := func(what func(i int) error) {
			var group sync.WaitGroup
			for i := range containers {
				group.Go(func() { n.Do(func() { report(t, what(i)) }) })
			}
			group.Wait()
		}
		id := func(i int) string { return fmt.Sprintf("c%d", i) }
		all(func(i int) error {
			return New().AddPortMaps(ctx, keyOf(id(i)), publish(t, fmt.Sprintf("tcp/%d=10.88.0.%d:80", 8000+i, i+2)))
		})
		got := n.rules(t, &ipv4, "nat")
		if count := strings.Count(got, "-A CNI-HOSTPORT-DNAT "); count != containers || strings.Count(got, "-A PREROUTING") != 1 || strings.Count(got, "-A OUTPUT") != 1 {
			t.Errorf("%d entries in\n%s", count, got)
		}
		all(func(i int) error {
			if i%2 == 0 { // odd ones go, and are replaced
				return New().CheckPortMaps(ctx, keyOf(id(i)), publish(t, fmt.Sprintf("tcp/%d=10.88.0.%d:80", 8000+i, i+2)))
			}
			_, err := New().DelPortMaps(ctx, keyOf(id(i)), nil)
			if err != nil {
				return err
			}
			return New().AddPortMaps(ctx, keyOf("x"+id(i)), publish(t, fmt.Sprintf("tcp/%d=10.88.1.%d:80", 8000+i, i+2)))
		})
		all(func(i int) error {
			_, err := New().DelPortMaps(ctx, keyOf(id(i)), nil)
			if err != nil {
				return err
			}
			_, err = New().DelPortMaps(ctx, keyOf("x"+id(i)), nil)
			return err
		})
		same(t, "nat", sorted(n.rules(t, &ipv4, "nat")+n.kept(t)), sorted(topChains+topJumps+topMarks))
	})
}

func report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
