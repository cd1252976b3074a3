package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chainOf returns the chain of a container of network net.
func chainOf(u Kind, id string) string { return u.chains(keyOf(id))[0] }

// masqueraded is what the nat table holds for one container.
func masqueraded(id, network string, sources ...string) string {
	chain := chainOf(Masquerading, id)
	c := ` -m comment --comment "name: \"net\" id: \"` + id + `\""`
	text := ":" + chain + "\n"
	for _, s := range sources {
		text += "-A POSTROUTING -s " + s + c + " -j " + chain + "\n"
	}
	multicast := "224.0.0.0/4"
	if strings.Contains(network, ":") {
		multicast = "ff00::/8"
	}
	return text + "-A " + chain + " -d " + network + c + " -j ACCEPT\n" +
		"-A " + chain + " ! -d " + multicast + c + " -j MASQUERADE\n"
}

func same(t testing.TB, what, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestMasquerade(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		dual := prefixes("10.88.0.2/16", "fd00::2/64")
		for range 3 { // the same rules once
			n.do(t, func() error { return New().AddMasquerade(ctx, keyOf("a"), dual) })
			same(t, "nat", n.rules(t, &ipv4, "nat"), masqueraded("a", "10.88.0.0/16", "10.88.0.2/32"))
			same(t, "nat of IPv6", n.rules(t, &ipv6, "nat"), masqueraded("a", "fd00::/64", "fd00::2/128"))
		}
		n.do(t, func() error { return New().CheckMasquerade(ctx, keyOf("a"), dual) })
		n.do(t, func() error { return New().DelMasquerade(ctx, keyOf("a"), nil) })
		same(t, "nat after DEL", n.rules(t, &ipv4, "nat")+n.rules(t, &ipv6, "nat")+n.kept(t), "")
		n.do(t, func() error { return New().DelMasquerade(ctx, keyOf("a"), dual) })

		back := n.hidePrograms(t)
		n.do(t, func() error { return New().DelMasquerade(ctx, keyOf("a"), dual) })
		n.do(t, func() error { return New().GCMasquerade(ctx, "net", nil) })
		back()
	})
}

// Another ADD with other addresses takes the first one's place.
func TestMasqueradeReplaced(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.do(t, func() error { return New().AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/16", "fd00::2/64")) })
		n.do(t, func() error { return New().AddMasquerade(ctx, keyOf("a"), prefixes("10.99.0.7/24")) })
		same(t, "nat", n.rules(t, &ipv4, "nat")+n.rules(t, &ipv6, "nat"), masqueraded("a", "10.99.0.0/24", "10.99.0.7/32"))
		n.do(t, func() error { return New().AddMasquerade(ctx, keyOf("a"), nil) })
		same(t, "nat", n.rules(t, &ipv4, "nat")+n.kept(t), "")
	})
}

// Two interfaces of a container share a chain; each goes alone.
func TestMasqueradeTwoInterfaces(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		eth0, eth1, eth2 := second("a", "eth0"), second("a", "eth1"), second("a", "eth2")
		n.do(t, func() error { return New().AddMasquerade(ctx, eth0, prefixes("10.88.0.2/16")) })
		n.do(t, func() error { return New().AddMasquerade(ctx, eth1, prefixes("10.88.0.3/16")) })
		same(t, "two", n.rules(t, &ipv4, "nat"), masqueraded("a", "10.88.0.0/16", "10.88.0.2/32", "10.88.0.3/32"))
		n.do(t, func() error { return New().AddMasquerade(ctx, eth2, prefixes("10.99.0.3/24")) })
		got := n.rules(t, &ipv4, "nat")
		if strings.Index(got, "10.99.0.0/24") > strings.Index(got, "MASQUERADE") {
			t.Errorf("the second network is reached only through MASQUERADE:\n%s", got)
		}
		n.do(t, func() error { return New().DelMasquerade(ctx, eth2, nil) })
		n.do(t, func() error { return New().DelMasquerade(ctx, eth0, nil) })
		n.do(t, func() error { return New().DelMasquerade(ctx, eth0, nil) })
		same(t, "one", n.rules(t, &ipv4, "nat"), masqueraded("a", "10.88.0.0/16", "10.88.0.3/32"))
		n.do(t, func() error { return New().CheckMasquerade(ctx, eth1, prefixes("10.88.0.3/16")) })
		n.do(t, func() error { return New().DelMasquerade(ctx, eth1, nil) })
		same(t, "none", n.rules(t, &ipv4, "nat")+n.kept(t), "")
	})
}

// What a killed ADD, an administrator or another flavour leaves is removed too.
func TestMasqueradeDamaged(t *testing.T) {
	chain := chainOf(Masquerading, "a")
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, n *node)
	}{
		{"flushed", func(t *testing.T, n *node) { n.restore(t, "nat", "-F") }},
		{"chains gone", func(t *testing.T, n *node) { n.restore(t, "nat", "-F", "-X") }},
		{"jump gone", func(t *testing.T, n *node) { n.restore(t, "nat", "-F POSTROUTING") }},
		{"another jump", func(t *testing.T, n *node) { n.restore(t, "nat", "-A POSTROUTING -s 10.88.0.0/16 -j "+chain) }},
		{"record gone", func(t *testing.T, n *node) { n.MustRun(t, "rm", ownersFile) }},
		{"other flavour now", func(t *testing.T, n *node) {
			n.use(t, map[string]string{"nft": "legacy", "legacy": "nft"}[n.flavour])
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, n *node) {
				made := n.flavour
				n.do(t, func() error { return New().AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/16")) })
				tt.damage(t, n)
				n.do(t, func() error { return New().DelMasquerade(ctx, keyOf("a"), nil) })
				n.flavour = made
				same(t, "nat", n.rules(t, &ipv4, "nat")+n.kept(t), "")
			})
		})
	}
}

// An ADD puts right what is damaged.
func TestMasqueradeRepaired(t *testing.T) {
	chain := chainOf(Masquerading, "a")
	for _, lines := range [][]string{{"-F"}, {"-F", "-X"}, {"-F POSTROUTING"}, {"-F " + chain}} {
		eachFlavour(t, func(t *testing.T, n *node) {
			add := func() error { return New().AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/16")) }
			n.do(t, add)
			n.restore(t, "nat", lines...)
			n.do(t, add)
			n.do(t, add)
			same(t, strings.Join(lines, "; "), n.rules(t, &ipv4, "nat"), masqueraded("a", "10.88.0.0/16", "10.88.0.2/32"))
		})
	}
}

func TestMasqueradeCheck(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		add := func() error { return New().AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/16")) }
		check := func() error { return New().CheckMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/16")) }
		chain := chainOf(Masquerading, "a")
		wantError(t, n.try(check), "table nat of iptables lacks the rule of net/a/eth0", "-A "+chain)
		for _, tt := range []struct{ damage, want string }{
			{"-F POSTROUTING", "-A POSTROUTING -s 10.88.0.2/32"},
			{"-F " + chain, "-A " + chain + " -d 10.88.0.0/16"},
		} {
			n.do(t, add)
			n.do(t, check)
			n.restore(t, "nat", tt.damage)
			before := n.rules(t, &ipv4, "nat")
			wantError(t, n.try(check), "table nat of iptables-"+n.flavour, "lacks the rule of net/a/eth0", tt.want)
			same(t, "CHECK changes nothing", n.rules(t, &ipv4, "nat"), before)
		}
	})
}

func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want one with %q", err, w)
		}
	}
}
