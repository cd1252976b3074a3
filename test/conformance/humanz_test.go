package conformance

import (
	"regexp"
	"strings"
)

// humanzLan is humanz' configuration {"bridge": "humanz-cni0", "subnet": "100.100.0.0/24"}, said with bridge and host-local.
const humanzLan = `{"type":"bridge","bridge":"humanz-cni0","isDefaultGateway":true,"ipam":{"type":"host-local","subnet":"100.100.0.0/24"}}`

// What a pod and the host see of humanz' network, as its program leaves it: the bridge has the subnet's first address, the first pod the second.
const (
	humanzPod = `N: eth0@ifN: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default qlen 1000 link-netnsid 0
    inet 100.100.0.2/24 brd 100.100.0.255 scope global eth0
       valid_lft forever preferred_lft forever
`
	humanzRoutes = `default via 100.100.0.1 dev eth0
100.100.0.0/24 dev eth0 proto kernel scope link src 100.100.0.2
`
	humanzBridge = `N: humanz-cni0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    inet 100.100.0.1/24 brd 100.100.0.255 scope global humanz-cni0
       valid_lft forever preferred_lft forever
`
	humanzHostRoutes = "100.100.0.0/24 dev humanz-cni0 proto kernel scope link src 100.100.0.1\n"
)

// linkIndex is what differs from node to node in what ip prints of a link.
var linkIndex = regexp.MustCompile(`(?m)^\d+:|@if\d+:`)

// looks makes sure that ip prints this, but for the indexes of links and blanks at the ends of lines.
func (l *lab) looks(printed, want string) {
	printed = linkIndex.ReplaceAllStringFunc(printed, func(index string) string {
		return strings.TrimRight(index, "0123456789:") + "N:"
	})
	l.same(strings.ReplaceAll(printed, " \n", "\n"), want)
}

// humanzRows compare with the contract of humanz' CNI, which is not among the plugins that are tried.
var humanzRows = group{name: "humanz", rows: []row{
	{name: "a pod of humanz' {bridge, subnet}, said with bridge and host-local, has the same link, address and routes", test: func(l *lab) {
		web := l.attach(conf(humanzLan).called("humanz-cni").in("0.3.1"), "web")
		l.looks(web.run("ip -4 address show dev eth0"), humanzPod)
		l.looks(web.run("ip -4 route"), humanzRoutes)
	}},
	{name: "the host of such a pod has the same gateway on the bridge, with the pod's link as a port", test: func(l *lab) {
		web := l.attach(conf(humanzLan).called("humanz-cni").in("0.3.1"), "web")
		l.looks(l.run("ip -4 address show dev humanz-cni0"), humanzBridge)
		l.looks(l.run("ip -4 route"), humanzHostRoutes)
		l.has(&l.host.Namespace, web.hostEnd(), "master", "humanz-cni0", "mtu", 1500)
		l.isUp(&l.host.Namespace, web.hostEnd())
	}},
	{name: "such pods reach each other and the host, and the host them", test: func(l *lab) {
		n := conf(humanzLan).called("humanz-cni").in("0.3.1")
		web, db := l.attach(n, "web"), l.attach(n, "db")
		l.same([]string{web.v4, db.v4}, []string{"100.100.0.2", "100.100.0.3"})
		l.serve(&web.Namespace, 80)
		l.serve(&l.host.Namespace, 81)
		db.pings(web.v4, "100.100.0.1")
		l.answers(tcp(&db.Namespace, web.v4, 80), "web saw "+db.v4)
		l.answers(udp(&l.host.Namespace, web.v4, 80), "web saw 100.100.0.1")
		l.answers(tcp(&web.Namespace, "100.100.0.1", 81), "host saw "+web.v4)
	}},
	{name: "the result of such an ADD has the address and the gateway of humanz' result", test: func(l *lab) {
		web := l.attach(conf(humanzLan).called("humanz-cni").in("0.3.1"), "web")
		ip := object(web.printed)["ips"].([]any)[0].(map[string]any)
		delete(ip, "interface") // humanz names no interfaces
		l.printed(text(ip), `{"version":"4","address":"100.100.0.2/24","gateway":"100.100.0.1"}`)
		l.same(object(web.printed)["cniVersion"], "0.3.1")
	}},
}}
