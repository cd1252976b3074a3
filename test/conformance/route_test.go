package conformance

import (
	"fmt"
	"math/rand"
	"strings"
)

// What the rows of sbr and vrf share: a container with an interface that some plugin has made and given addresses and routes.

// cantRead is why the reference plugins fail rows about configurations that became wrong.
const cantRead = "its DEL fails when it can't read the configuration"

// wiredAddresses and wiredRoutes are those of the interface, as ip takes them.
const (
	wiredAddresses = "address add 10.47.0.2/24 dev eth0\naddress add fd00:47::2/64 dev eth0 nodad\n"
	wiredRoutes    = `route add 10.60.0.0/16 via 10.47.0.1
route add 192.0.2.0/24 dev eth0 scope link
route add default via 10.47.0.1 metric 50 mtu 1400 advmss 1300
-6 route add fd00:60::/48 via fd00:47::1
-6 route add fd00:61::/48 dev eth0 metric 7
-6 route add default via fd00:47::1
`
)

// wired makes the container.
func (l *lab) wired(name string, options ...option) *container {
	c := l.fresh(name, options...)
	c.batch("link set peer0 up\nlink set eth0 up\n" + wiredAddresses + wiredRoutes)
	return c
}

// batch runs commands of ip in the container, one on each line: first those of no family in particular, then those that begin with -6.
func (c *container) batch(commands string) {
	var v6 strings.Builder
	for line := range strings.Lines(commands) {
		if own, ok := strings.CutPrefix(line, "-6 "); ok {
			v6.WriteString(own)
			commands = strings.Replace(commands, line, "\n", 1)
		}
	}
	c.Feed(c.lab, commands, "ip", "-batch", "-")
	if v6.Len() > 0 {
		c.Feed(c.lab, v6.String(), "ip", "-6", "-batch", "-")
	}
}

// wiredResult is the result of the plugin that made the interface.
func (c *container) wiredResult() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":"peer0","mac":"02:00:00:00:00:0f"},{"name":%q,"mac":%q,"sandbox":%q}],
		"ips":[{"address":"10.47.0.2/24","gateway":"10.47.0.1","interface":1},{"address":"fd00:47::2/64","gateway":"fd00:47::1","interface":1}],
		"routes":[{"dst":"10.60.0.0/16"},{"dst":"fd00:60::/48","gw":"fd00:47::1"},{"dst":"0.0.0.0/0"}],"dns":{"domain":"site"}}`,
		c.runtime.IfName, untunedMAC, c.Path())
}

// after calls a verb of a plugin as a runtime does, with the result of the plugin that made the interface.
func (c *container) after(verb, config string, changes ...change) error {
	_, err := c.lab.exec(verb, c, with(config, "prevResult", c.wiredResult()), changes...)
	return err
}

// bareDel calls DEL with a namespace alone.
func (c *container) bareDel(config string) error {
	_, err := c.lab.exec("DEL", c, config)
	return err
}

// randomRoutes are routes of the interface such as people and plugins make them, as ip takes them. Equal seeds give equal routes.
func randomRoutes(seed int64) string {
	random := rand.New(rand.NewSource(seed))
	pick := func(list ...string) string { return list[random.Intn(len(list))] }
	var out strings.Builder
	for i := range 30 {
		v4 := random.Intn(2) == 0
		add, prefix, far, source := fmt.Sprintf("-6 route add fd00:%x::/%d", 0x100+i, 32+random.Intn(17)), "fd00:47::", "fd00:bad::1", "fd00:47::2"
		if v4 {
			add, prefix, far, source = fmt.Sprintf("route add 10.%d.0.0/%d", 100+i, 16+random.Intn(9)), "10.47.0.", "172.31.0.1", "10.47.0.2"
		}
		onLink := " dev eth0"
		if v4 {
			onLink += " scope " + pick("link", "global")
		}
		out.WriteString(add + pick("", "", " src "+source) + pick("", "", fmt.Sprint(" metric ", 1+random.Intn(3000))))
		out.WriteString(pick("", "", " mtu 1300", " advmss 1200", " mtu lock 1280", " window 9000 initcwnd 12"))
		out.WriteString(pick("", "", " proto static", " proto ra", " proto 99"))
		if v4 {
			out.WriteString(pick("", "", "", " tos 0x10"))
		}
		out.WriteString(pick(onLink, " via "+prefix+"1", " via "+far+" dev eth0 onlink",
			" nexthop via "+prefix+"1 dev eth0 weight 2 nexthop via "+prefix+"5 dev eth0") + "\n")
	}
	return out.String()
}
