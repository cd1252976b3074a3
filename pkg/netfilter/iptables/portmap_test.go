package iptables

import "testing"

// A port is free when its owner's rules are gone, or its address is another's.
func TestPortTakenOver(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		a := PortMapRules(keyOf("a"), publish(t, "tcp/8080=10.88.0.2:80"))
		n.add(t, a)
		n.add(t, PortMapRules(keyOf("b"), publish(t, "tcp/8080=10.88.0.2:81")))
		same(t, "a has lost its address", lines(n.rules(t, &ipv4, "nat"), a.owner.chains()[0]), "")
		n.del(t, PortMapping, keyOf("a"))
		n.restore(t, "nat", "-F", "-X")
		c := PortMapRules(keyOf("c"), publish(t, "tcp/8080=10.88.0.3:80"))
		n.add(t, c)
		n.del(t, PortMapping, keyOf("b"))
		must(t, n.check(t, c))
		n.del(t, PortMapping, keyOf("c"))
		same(t, "records", n.kept(t), "")
	})
}
