package conformance

import "fmt"

const (
	refSmall   = "it takes no subnet of fewer than four addresses"
	refExclude = "it does not know exclude"
)

// smallRanges are rows about subnets of one or two addresses.
func smallRanges() (rows []row) {
	for _, r := range []struct{ name, keys, want string }{
		{"a subnet of two addresses has one for the gateway, the first", `"subnet":"10.1.2.0/31"`, "10.1.2.1/31>10.1.2.0"},
		{"a subnet of two addresses with the second for the gateway", `"subnet":"10.1.2.0/31","gateway":"10.1.2.1"`, "10.1.2.0/31>10.1.2.1"},
		{"an IPv6 subnet of two addresses", `"subnet":"fd00::/127"`, "fd00::1/127>fd00::"},
		{"a single address has no gateway", `"subnet":"10.1.2.7/32"`, "10.1.2.7/32"},
		{"a single address with a gateway elsewhere", `"subnet":"10.1.2.7/32","gateway":"169.254.1.1"`, "10.1.2.7/32>169.254.1.1"},
		{"a single IPv6 address", `"subnet":"fd00::7/128"`, "fd00::7/128"},
	} {
		rows = append(rows, row{name: r.name, differs: refSmall, test: func(l *lab) { l.attach(leased(r.keys), "web").ips(r.want) }})
	}
	return append(rows,
		row{name: "a subnet of two addresses with a gateway elsewhere has two to hand out", differs: refSmall, test: func(l *lab) {
			n := leased(`"subnet":"10.1.2.0/31","gateway":"169.254.1.1"`)
			l.attach(n, "one").ips("10.1.2.0/31>169.254.1.1")
			l.attach(n, "two").ips("10.1.2.1/31>169.254.1.1")
			l.refused(l.pod("late").add(n), "10.1.2.0-10.1.2.1", "2 addresses")
		}},
		row{name: "a list of single addresses", differs: refSmall, test: func(l *lab) {
			n := leased(`"ranges":[[{"subnet":"10.1.2.7/32"},{"subnet":"10.1.9.1/32"}]]`)
			l.attach(n, "one").ips("10.1.2.7/32")
			l.attach(n, "two", capability("ips", `["10.1.9.1"]`)).ips("10.1.9.1/32")
			l.refused(l.pod("late").add(n), "2 addresses")
		}},
		row{name: "a container with a subnet of two addresses reaches its gateway", differs: refSmall, test: func(l *lab) {
			c := l.attach(leasedByGateway(`"ranges":[[{"subnet":"10.1.2.0/31"}],[{"subnet":"fd00::/127"}]]`), "web")
			l.pingsAtOnce(&c.Namespace, "10.1.2.0", "fd00::")
			l.must(c.check())
		}},
		row{name: "a container with a single address reaches its gateway by ptp", differs: refSmall, test: func(l *lab) {
			ptp := with(ofHostLocal(`"subnet":"10.1.2.7/32","gateway":"169.254.1.1","routes":[{"dst":"0.0.0.0/0"}]`), "type", `"ptp"`)
			c := l.attach(conf(ptp), "web")
			l.pingsAtOnce(&c.Namespace, "169.254.1.1")
			l.must(c.check())
		}},
	)
}

// excludedAddresses are rows about addresses that are not to be handed out.
func excludedAddresses() (rows []row) {
	for _, r := range []struct{ name, keys, want string }{
		{"an address beside subnet", `"subnet":"10.1.2.0/24","exclude":["10.1.2.2"]`, "10.1.2.3/24>10.1.2.1"},
		{"addresses and networks of a range", `"ranges":[[{"subnet":"10.1.2.0/24","exclude":["10.1.2.4/30","10.1.2.2","10.1.2.3"]}]]`, "10.1.2.8/24>10.1.2.1"},
		{"half of an IPv6 subnet", `"subnet":"fd00::/64","exclude":["fd00::/65"]`, "fd00::8000:0:0:0/64>fd00::1"},
		{"addresses outside of rangeStart and rangeEnd, too", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","exclude":["10.1.2.9","10.1.2.200"]`, "10.1.2.10/24>10.1.2.1"},
	} {
		rows = append(rows, row{name: "excluded: " + r.name, differs: refExclude, test: func(l *lab) { l.attach(leased(r.keys), "web").ips(r.want) }})
	}
	for _, r := range []struct{ name, exclude, part string }{
		{"what is no address", `["ten"]`, "ten"},
		{"a network with host bits", `["10.1.2.17/28"]`, "10.1.2.16/28"},
		{"an address of another network", `["10.1.3.5"]`, "10.1.3.5"},
		{"an address of the other family", `["fd00::5"]`, "fd00::5"},
		{"all addresses", `["10.1.2.0/25","10.1.2.128/25"]`, "10.1.2.1-10.1.2.254"},
		{"a text in place of a list", `"10.1.2.5"`, "exclude"},
	} {
		rows = append(rows, row{name: "refused: to exclude " + r.name, differs: refExclude, test: func(l *lab) {
			l.refused(l.pod("web").add(leased(`"subnet":"10.1.2.0/24","exclude":`+r.exclude)), r.part)
			l.held()
		}})
	}
	const three = `"subnet":"10.1.2.0/29","exclude":["10.1.2.3/32","10.1.2.6"]` // .2, .4 and .5
	return append(rows,
		row{name: "excluded: they are passed over until the range is full", differs: refExclude, test: func(l *lab) {
			n := leased(three)
			for i, want := range []string{"10.1.2.2", "10.1.2.4", "10.1.2.5"} {
				l.attach(n, fmt.Sprint("pod", i)).ips(want + "/29>10.1.2.1")
			}
			l.refused(l.pod("late").add(n), "3 addresses")
		}},
		row{name: "excluded: ranges of the capability ipRanges have such addresses", differs: refExclude, test: func(l *lab) {
			l.attach(leased(``), "web", capability("ipRanges", `[[{`+three+`,"rangeStart":"10.1.2.3"}]]`)).ips("10.1.2.4/29>10.1.2.1")
		}},
		row{name: "excluded: such an address can't be asked for", differs: refExclude, test: func(l *lab) {
			l.refused(l.pod("web").add(leased(three), capability("ips", `["10.1.2.3"]`)), "10.1.2.3")
			l.held()
		}},
		row{name: "excluded: a container keeps an address that is excluded later, until DEL", test: func(l *lab) {
			c := l.attach(leasedByGateway(`"subnet":"10.1.2.0/29"`), "web", capability("ips", `["10.1.2.3"]`))
			c.network = leasedByGateway(three)
			l.must(c.check(), c.del())
			l.held()
		}},
	)
}
