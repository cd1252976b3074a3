package iptables

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestPortMapOptions(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.restore(t, "nat", "-N KUBE-MARK-MASQ")
		ports := publish(t, "tcp/8080=10.88.0.2:80")
		ports.SetMarkChain = "KUBE-MARK-MASQ"
		n.add(t, PortMapRules(keyOf("a"), ports))
		if got := n.rules(t, &ipv4, "nat"); strings.Contains(got, markChain) || !strings.Contains(got, "-s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ") {
			t.Errorf("with a chain of someone else:\n%s", got)
		}
		other := publish(t, "tcp/9090=10.88.0.3:80")
		other.MarkBit, other.MasqAll = 31, true
		n.add(t, PortMapRules(keyOf("b"), other))
		n.add(t, PortMapRules(keyOf("c"), publish(t, "tcp/9091=10.88.0.4:80"))) // another bit beside it
		before := n.rules(t, &ipv4, "nat")
		for _, want := range []string{"0x2000/0x2000 -j MASQUERADE", "0x80000000/0x80000000 -j MASQUERADE", "-j MARK --set-xmark 0x80000000/0x80000000",
			"-p tcp -m tcp --dport 9090 -j " + markChain} {
			if !strings.Contains(before, want) {
				t.Errorf("no %q in\n%s", want, before)
			}
		}
		missing := publish(t, "tcp/7070=10.88.0.5:80")
		missing.SetMarkChain = "NOT-THERE"
		wantError(t, n.tryAdd(t, PortMapRules(keyOf("d"), missing)), "NOT-THERE", "failed")
		same(t, "after a failure", n.rules(t, &ipv4, "nat")+lines(n.kept(t), "7070"), before)
	})
}

func TestPortTaken(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.add(t, PortMapRules(keyOf("a"), publish(t, "tcp/8080=10.88.0.2:80", "tcp/192.0.2.1:81=10.88.0.2:80")))
		before := n.rules(t, &ipv4, "nat") + n.kept(t)
		for _, m := range []string{"tcp/8080=10.88.0.3:80", "tcp/192.0.2.1:81=10.88.0.3:80"} {
			host, _, _ := strings.Cut(m, "=")
			err := n.tryAdd(t, PortMapRules(keyOf("b"), publish(t, "tcp/9999=10.88.0.3:1", m)))
			wantError(t, err, "host port "+host+" is already published by net/a/eth0")
			same(t, "after a conflict", n.rules(t, &ipv4, "nat")+n.kept(t), before)
		}
		// Not the same port.
		n.add(t, PortMapRules(keyOf("c"), publish(t, "udp/8080=10.88.0.3:80", "tcp/81=10.88.0.3:80", "tcp/8080=[fd00::3]:80")))
		ports := fmt.Sprint(n.del(t, PortMapping, keyOf("a")))
		same(t, "removed", ports, "[tcp/8080 tcp/192.0.2.1:81]")
		b := PortMapRules(keyOf("b"), publish(t, "tcp/8080=10.88.0.3:80"))
		n.add(t, b)
		n.del(t, PortMapping, keyOf("a")) // late, and not its port any more
		must(t, n.check(t, b))
		wantError(t, n.tryAdd(t, PortMapRules(keyOf("d"), publish(t, "tcp/8080=10.88.0.4:80"))), "net/b/eth0")
	})
}

// A port is free when its owner's rules are gone, its address is another's, or its namespace is gone.
func TestPortTakenOver(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		a := PortMapRules(keyOf("a"), publish(t, "tcp/8080=10.88.0.2:80"))
		isGone := func(what string) {
			t.Helper()
			same(t, what, lines(n.rules(t, &ipv4, "nat"), a.owner.chains()[0]), "")
		}
		n.add(t, a)
		n.add(t, PortMapRules(keyOf("b"), publish(t, "tcp/8080=10.88.0.2:81")))
		isGone("a has lost its address")
		n.del(t, PortMapping, keyOf("a"))
		n.restore(t, "nat", "-F", "-X")
		c := PortMapRules(keyOf("c"), publish(t, "tcp/8080=10.88.0.3:80"))
		n.add(t, c)
		n.del(t, PortMapping, keyOf("b"))
		must(t, n.check(t, c))
		n.del(t, PortMapping, keyOf("c"))
		same(t, "records", n.kept(t), "")

		n.add(t, a)
		pod := n.NewPod(t, "pod")
		const results = "/run/another/results"
		cached := `{"networkName":"net","containerId":"a","ifName":"eth0","netns":"` + pod.Path() + `"}`
		n.Do(func() {
			must(t, os.MkdirAll(results, 0o755))
			must(t, os.WriteFile(results+"/net-a-eth0", []byte(cached), 0o644))
		})
		ports := publish(t, "tcp/8080=10.88.0.3:80")
		ports.Results = results
		wantError(t, n.tryAdd(t, PortMapRules(keyOf("b"), ports)), "by net/a/eth0", pod.Path()+" is there")
		pod.Delete(t)
		n.add(t, PortMapRules(keyOf("b"), ports))
		isGone("a is gone")
	})
}
