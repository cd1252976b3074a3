package conformance

import (
	"fmt"

	"github.com/cnibox/cnibox/test/netlab"
)

// guardedBridge is a network with a policy on a bridge of its own.
func (l *lab) guardedBridge(i int, policy string) network {
	bridge := with(lan, "bridge", fmt.Sprintf(`"lan%d"`, i),
		"ipam", fmt.Sprintf(`{"type":"host-local","ranges":[[{"subnet":"10.%d.0.0/24"}],[{"subnet":"fd00:%d::/64"}]]}`, 60+i, 60+i))
	n := conf(bridge, l.firewall("ingressPolicy", text(policy)))
	if policy == "" {
		n = conf(bridge)
	}
	return n.called(fmt.Sprint("net", i))
}

// publishing is a network with a policy, published ports and the key allowPublishedPorts.
func (l *lab) publishing(policy, allow string) network {
	l.outside() // with which the node has addresses to publish on
	n := l.guardedBridge(1, policy)
	n.plugins = []string{n.plugins[0], published(l).plugins[1], with(n.plugins[1], "allowPublishedPorts", allow)}
	return n
}

const noSuchKey = "it has no such key"

// connects makes sure that somebody answers along all paths, or nobody.
func (l *lab) connects(passes bool, paths ...path) {
	if passes {
		l.pass(paths...)
	} else {
		l.silent(paths...)
	}
}

// serving attaches a container that answers.
func (l *lab) serving(n network, name string) *container {
	c := l.attach(n, name)
	l.serve(&c.Namespace, 80)
	return c
}

func firewallPolicies() (rows []row) {
	for _, policy := range []string{"open", "same-bridge", "isolated"} {
		rows = append(rows,
			row{name: policy + ": the node, the outside and bridges without a policy connect to the container", backends: true, test: func(l *lab) {
				c := l.serving(l.guardedBridge(1, policy), "web")
				bare := l.attach(l.guardedBridge(9, ""), "bare")
				l.outside().AddRoute(l, "10.61.0.0/24")
				l.out.AddRoute(l, "fd00:61::/64")
				l.pass(c.to(&l.host.Namespace)...)
				l.pass(c.to(&bare.Namespace)...)
				l.pass(c.to(&l.out.Namespace)...)
				l.must(c.check())
			}},
			row{name: policy + ": the container connects to the outside, the node and bridges without a policy", backends: true, test: func(l *lab) {
				l.internet()
				l.serve(&l.host.Namespace, 80)
				c := l.attach(l.guardedBridge(1, policy), "web")
				bare := l.serving(l.guardedBridge(9, ""), "bare")
				l.pass(c.away()...)
				l.pass(tcp(&c.Namespace, "10.61.0.1", 80), tcp(&c.Namespace, "fd00:61::1", 80))
				l.pass(bare.to(&c.Namespace)...)
			}})
	}
	for _, c := range []struct {
		one, two string
		passes   bool
	}{
		{"open", "open", true}, {"open", "isolated", true}, {"same-bridge", "open", true},
		{"same-bridge", "same-bridge", false}, {"isolated", "isolated", false}, {"same-bridge", "isolated", false},
	} {
		name := fmt.Sprintf("%s keeps apart from a bridge that is %s", c.one, c.two)
		if c.passes {
			name = fmt.Sprintf("%s connects with a bridge that is %s", c.one, c.two)
		}
		rows = append(rows, row{name: name, backends: true, test: func(l *lab) {
			one, two := l.serving(l.guardedBridge(1, c.one), "one"), l.serving(l.guardedBridge(2, c.two), "two")
			paths := append(one.to(&two.Namespace), two.to(&one.Namespace)...)
			l.connects(c.passes, paths...)
		}})
	}
	for _, c := range []struct {
		policy  string
		passes  bool
		bridged bool
		differs string
	}{
		{"open", true, false, ""}, {"open", true, true, ""}, {"same-bridge", true, false, ""}, {"same-bridge", true, true, ""}, {"isolated", false, true, ""},
		{"isolated", false, false, "its rules don't see what crosses a bridge without br_netfilter"},
	} {
		name := c.policy + ": containers of the same bridge connect"
		if !c.passes {
			name = c.policy + ": containers of the same bridge don't connect"
		}
		if c.bridged {
			name += ", with br_netfilter"
		}
		// Rules of iptables can't see it, ours or not.
		rows = append(rows, row{name: name, backends: c.differs == "", differs: c.differs, test: func(l *lab) {
			l.host.FilterBridged(l, c.bridged)
			n := l.guardedBridge(1, c.policy)
			one, two := l.serving(n, "one"), l.serving(n, "two")
			paths := append(one.to(&two.Namespace), two.to(&one.Namespace)...)
			l.connects(c.passes, paths...)
			l.must(one.check())
		}})
	}
	for _, policy := range []string{"same-bridge", "isolated"} {
		rows = append(rows,
			row{name: policy + ": with allowPublishedPorts published ports are reached from other protected bridges, and no others", backends: true, differs: noSuchKey, test: func(l *lab) {
				l.host.FilterBridged(l, false)
				before := l.serving(l.guardedBridge(2, policy), "before")
				web := l.attach(l.publishing(policy, "true"), "web", ports("8080:80/tcp"))
				l.serve(&web.Namespace, 80)
				l.serve(&web.Namespace, 81)
				after := l.serving(l.guardedBridge(3, policy), "after")
				beside := l.attach(l.publishing(policy, "true"), "beside")
				for _, from := range []*container{before, after, beside} {
					l.pass(tcp(&from.Namespace, netlab.HostIPv4, 8080), tcp(&from.Namespace, netlab.HostIPv6, 8080))
				}
				for _, from := range []*container{before, after} {
					l.silent(append(web.to(&from.Namespace), tcp(&from.Namespace, web.v4, 81), tcp(&from.Namespace, web.v6, 81))...)
					l.silent(from.to(&web.Namespace)...)
				}
				l.silent(append(before.to(&after.Namespace), after.to(&before.Namespace)...)...)
				l.must(web.check())
			}},
			row{name: policy + ": allowPublishedPorts of one bridge opens no published port of another", needs: &netlab.NFTables, backends: true, test: func(l *lab) {
				web := l.attach(l.publishing(policy, "false"), "web", ports("8080:80/tcp"))
				l.serve(&web.Namespace, 80)
				n := l.guardedBridge(2, policy)
				n.plugins[1] = with(n.plugins[1], "allowPublishedPorts", "true")
				other, beside := l.attach(n, "other"), l.attach(l.publishing(policy, "false"), "beside")
				web.run("nft add table inet row")
				web.run("nft add chain inet row got { type filter hook prerouting priority 0 ; }")
				web.run("nft add rule inet row got tcp dport 80 counter")
				l.silent(tcp(&other.Namespace, netlab.HostIPv4, 8080), tcp(&other.Namespace, netlab.HostIPv6, 8080))
				if policy == "isolated" {
					l.silent(tcp(&beside.Namespace, netlab.HostIPv4, 8080), tcp(&beside.Namespace, netlab.HostIPv6, 8080))
				}
				l.shows(web.run("nft list chain inet row got"), "counter packets 0 ")
			}},
			row{name: policy + ": allowPublishedPorts goes with the last container that has it", backends: true, differs: noSuchKey, test: func(l *lab) {
				other := l.attach(l.guardedBridge(2, policy), "other")
				web := l.attach(l.publishing(policy, "false"), "web", ports("8080:80/tcp"))
				l.serve(&web.Namespace, 80)
				to8080 := []path{tcp(&other.Namespace, netlab.HostIPv4, 8080), tcp(&other.Namespace, netlab.HostIPv6, 8080)}
				l.silent(to8080...)
				first, second := l.attach(l.publishing(policy, "true"), "first"), l.attach(l.publishing(policy, "true"), "second")
				l.must(first.del())
				l.pass(to8080...)
				l.must(second.check())
				l.must(second.del())
				l.silent(to8080...)
				l.must(web.check())
			}})
	}
	return append(rows,
		row{name: "CHECK finds that allowPublishedPorts is missing", backends: true, differs: policyNotSeen, test: func(l *lab) {
			c := l.attach(l.guardedBridge(1, "same-bridge"), "web")
			c.network.plugins[1] = with(c.network.plugins[1], "allowPublishedPorts", "true")
			l.refused(c.firewall("CHECK"))
		}},
		row{name: "a policy lets through a node that drops forwarded packets", backends: true, test: func(l *lab) {
			l.closedInternet()
			c, other := l.attach(l.guardedBridge(1, "isolated"), "web"), l.serving(l.guardedBridge(2, "same-bridge"), "other")
			l.pass(c.away()...)
			l.silent(other.to(&c.Namespace)...)
		}},
		row{name: "a policy comes before the administrator's accept", backends: true, test: func(l *lab) {
			one, two := l.serving(l.guardedBridge(1, "same-bridge"), "one"), l.serving(l.guardedBridge(2, "same-bridge"), "two")
			l.bothTables("-A CNI-ADMIN -j ACCEPT")
			l.silent(append(one.to(&two.Namespace), two.to(&one.Namespace)...)...)
		}},
		row{name: "a policy keeps a published port from other protected bridges", backends: true, test: func(l *lab) {
			n := l.guardedBridge(1, "same-bridge")
			n.plugins = []string{n.plugins[0], published(l).plugins[1], n.plugins[1]}
			c := l.attach(n, "web", ports("8080:80/tcp"))
			l.serve(&c.Namespace, 80)
			other := l.attach(l.guardedBridge(2, "same-bridge"), "other")
			l.pass(l.published(8080)...)
			l.silent(tcp(&other.Namespace, netlab.HostIPv4, 8080), tcp(&other.Namespace, netlab.HostIPv6, 8080))
		}},
		row{name: "a policy holds for all containers of its bridge", backends: true, test: func(l *lab) {
			n := l.guardedBridge(1, "same-bridge")
			l.attach(n, "web")
			bare := l.serving(conf(n.plugins[0]).called(n.name), "bare")
			other := l.attach(l.guardedBridge(2, "same-bridge"), "other")
			l.silent(bare.to(&other.Namespace)...)
		}},
		row{name: "a policy holds as long as one of its containers is there", backends: true, test: func(l *lab) {
			n := l.guardedBridge(1, "same-bridge")
			first, second := l.attach(n, "first"), l.serving(n, "second")
			strict := l.attach(l.guardedBridge(1, "isolated"), "strict")
			other := l.serving(l.guardedBridge(2, "same-bridge"), "other")
			l.must(first.del(), strict.del())
			l.silent(append(second.to(&other.Namespace), other.to(&second.Namespace)...)...)
			l.must(second.check())
		}},
		row{name: "a policy goes with the last of its containers", backends: true, differs: policyStays, test: func(l *lab) {
			n := l.guardedBridge(1, "isolated")
			first, second := l.attach(n, "first"), l.attach(n, "second")
			other := l.serving(l.guardedBridge(2, "same-bridge"), "other")
			l.must(first.del())
			l.must(second.del())
			bare := l.serving(conf(n.plugins[0]).called(n.name), "bare")
			l.pass(append(bare.to(&other.Namespace), other.to(&bare.Namespace)...)...)
		}},
		row{name: "CHECK finds that a policy is missing", backends: true, differs: policyNotSeen, test: func(l *lab) {
			for _, policy := range []string{"same-bridge", "isolated"} {
				c := l.attach(l.guarded(), policy)
				l.must(c.check())
				c.network = l.guarded("ingressPolicy", text(policy))
				l.refused(c.firewall("CHECK"))
			}
		}},
		row{name: "CHECK finds that a policy is gone", backends: true, differs: policyNotSeen, test: func(l *lab) {
			c := l.attach(l.guardedBridge(1, "same-bridge"), "web")
			l.must(c.check())
			// The policy goes with its last container, and the addresses are put back without it.
			l.must(c.firewall("DEL"))
			c.network.plugins[1] = l.firewall()
			l.must(c.firewall("ADD"))
			l.must(c.check())
			c.network.plugins[1] = l.firewall("ingressPolicy", `"same-bridge"`)
			l.refused(c.firewall("CHECK"))
		}},
	)
}
