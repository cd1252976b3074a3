package conformance

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/testutils"

	"github.com/cnibox/cnibox/test/netlab"
)

var bandwidthRows = group{name: "bandwidth", needs: &netlab.Shaping, rows: slices.Concat(
	bandwidthRates(), bandwidthValues(), bandwidthSources(), bandwidthResults(), bandwidthRefusals(), bandwidthFailures(),
	bandwidthDel(), bandwidthGC(), bandwidthCheck(), bandwidthStatus(),
)}

// Why the reference plugin fails rows.
const (
	oneIFB      = "it has one ifb for all interfaces of a container on a network"
	overflows   = "it lets numbers overflow that the kernel has 32 bits for"
	leavesParts = "its failed ADD leaves what it has made"
)

// bandwidth is the plugin's configuration with these keys.
func bandwidth(keys string) string { return `{"type":"bandwidth",` + keys + `}` }

// Limits of the rows.
const (
	toContainer   = `"ingressRate":10000000,"ingressBurst":524288`
	fromContainer = `"egressRate":20000000,"egressBurst":1048576`
	bothWays      = toContainer + `,` + fromContainer
)

// limited is the network lan with limits.
func limited(keys string) network { return conf(lan, bandwidth(keys)) }

// limit calls a verb of bandwidth for an attachment that has no limits yet or, after ADD, for one that has.
func (c *container) limit(verb, keys string, changes ...change) error {
	printed, err := c.lab.exec(verb, c, with(bandwidth(keys), "prevResult", c.printed), changes...)
	if verb == "ADD" && err == nil {
		c.printed = printed
	}
	return err
}

// ifbs are the names of the node's ifbs.
func (l *lab) ifbs() (names []string) {
	for _, link := range l.decode(l.run("ip -j link show type ifb")) {
		if name, ok := link["ifname"].(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// ifb is the name that the reference plugin gives the ifb of a container.
func ifb(network, id string) string {
	hash := sha512.Sum512([]byte(network + id))
	return "bwp" + hex.EncodeToString(hash[:])[:12]
}

var rootTBF = regexp.MustCompile(`qdisc tbf 1: root refcnt \d+ (rate .*\S)`)

// tbf is what tc says of the limit of what a link of the node sends; "" if there is none.
func (l *lab) tbf(link string) string {
	if match := rootTBF.FindStringSubmatch(l.run("tc qdisc show dev " + link)); match != nil {
		return match[1]
	}
	return ""
}

// limits makes sure that tc says this of the two limits of a container.
func (c *container) limits(ingress, egress string) {
	c.lab.same(c.lab.tbf(c.hostEnd()), ingress)
	is := ""
	if ifbs := c.lab.ifbs(); len(ifbs) == 1 {
		is = c.lab.tbf(ifbs[0])
	}
	c.lab.same(is, egress)
}

// megabits measures how many megabits a second arrive over TCP besides the burst. Where this process has to wait for a processor it
// sees less, never more.
func (l *lab) megabits(from, to *netlab.Namespace, address string, burst, count int64) float64 {
	var listener net.Listener
	var err error
	to.Do(func() { listener, err = net.Listen("tcp", ":0") })
	l.must(err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), l.patience())
	defer cancel()
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	sender, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(addr(address), port).String())
	l.must(err)
	defer sender.Close()
	receiver, err := listener.Accept()
	l.must(err)
	defer receiver.Close()
	l.must(receiver.SetDeadline(time.Now().Add(l.patience())))
	start := time.Now()
	go func() {
		for block := make([]byte, 1<<16); err == nil; {
			_, err = sender.Write(block)
		}
	}()
	_, failed := io.CopyN(io.Discard, receiver, burst+count)
	l.must(failed)
	return float64(count) * 8 / 1e6 / time.Since(start).Seconds()
}

// carries makes sure that about as much arrives as is configured: never much more, and at least once not much less.
func (l *lab) carries(from, to *netlab.Namespace, address string, configured float64) {
	const burst, tries = 65536, 4
	measured := 0.0
	for try := 0; try < tries && measured < configured/2; try++ {
		measured = l.megabits(from, to, address, burst, int64(configured*1e6/8/4)<<try) // a quarter of a second, and then longer
	}
	l.Logf("configured %.0f Mbit/s, measured %.1f from %s to %s", configured, measured, from.Name(), address)
	if measured < configured/2 || measured > configured*3/2 {
		l.Errorf("%.1f Mbit/s from %s to %s, configured are %.0f", measured, from.Name(), address, configured)
	}
}

func bandwidthRates() (rows []row) {
	for _, rate := range []int{10, 50} {
		limit := fmt.Sprintf(`Rate":%d000000,"`, rate)
		rows = append(rows,
			row{name: fmt.Sprintf("ingress of %d Mbit/s is what the container receives", rate), test: func(l *lab) {
				c := l.attach(limited(`"ingress`+limit+`ingressBurst":524288`), "web")
				settles(l)
				l.carries(&l.host.Namespace, &c.Namespace, c.v4, float64(rate))
				l.carries(&l.host.Namespace, &c.Namespace, c.v6, float64(rate))
			}},
			row{name: fmt.Sprintf("egress of %d Mbit/s is what the container sends", rate), test: func(l *lab) {
				c := l.attach(limited(`"egress`+limit+`egressBurst":524288`), "web")
				settles(l)
				l.carries(&c.Namespace, &l.host.Namespace, hostSide, float64(rate))
				l.carries(&c.Namespace, &l.host.Namespace, hostSide6, float64(rate))
			}},
		)
	}
	for _, rate := range []string{"1000000000", "10000000000"} {
		rows = append(rows, row{name: "packets of full size pass at " + rate + " bits a second with the least burst",
			differs: "it counts in whole microseconds, which have no room for the packet", test: func(l *lab) {
				limits := strings.ReplaceAll(`"ingressRate":RATE,"ingressBurst":12112,"egressRate":RATE,"egressBurst":12112`, "RATE", rate)
				c := l.attach(limited(limits), "web")
				c.run(fmt.Sprintf("ping -c 3 -i 0.01 -W %v -M do -s 1472 %s", l.patience().Seconds(), hostSide))
				l.run(fmt.Sprintf("ping -c 3 -i 0.01 -W %v -M do -s 1472 %s", l.patience().Seconds(), c.v4))
				l.must(c.check())
			}})
	}
	return append(rows,
		row{name: "both ways have limits of their own", test: func(l *lab) {
			c := l.attach(limited(`"ingressRate":2000000,"ingressBurst":524288,"egressRate":10000000,"egressBurst":524288`), "web")
			l.carries(&l.host.Namespace, &c.Namespace, c.v4, 2)
			l.carries(&c.Namespace, &l.host.Namespace, hostSide, 10)
		}},
		row{name: "the way without a limit has none", test: func(l *lab) {
			c := l.attach(limited(`"egressRate":2000000,"egressBurst":524288`), "web")
			const least, tries = 10, 4
			got := 0.0
			for try := 0; try < tries && got < least; try++ {
				got = l.megabits(&l.host.Namespace, &c.Namespace, c.v4, 65536, 2<<20)
			}
			if got < least {
				l.Errorf("the container receives %.1f Mbit/s, though nothing limits it", got)
			}
		}},
		row{name: "another container has a limit of its own", test: func(l *lab) {
			l.attach(limited(`"egressRate":2000000,"egressBurst":524288,"ingressRate":2000000,"ingressBurst":524288`), "slow")
			c := l.attach(limited(`"egressRate":10000000,"egressBurst":524288`), "web")
			l.carries(&c.Namespace, &l.host.Namespace, hostSide, 10)
		}},
		row{name: "a limit that the runtime asks for holds", test: func(l *lab) {
			c := l.attach(limited(`"capabilities":{"bandwidth":true}`), "web",
				capability("bandwidth", `{"ingressRate":10000000,"ingressBurst":524288,"egressRate":10000000,"egressBurst":524288}`))
			l.carries(&l.host.Namespace, &c.Namespace, c.v4, 10)
			l.carries(&c.Namespace, &l.host.Namespace, hostSide, 10)
		}},
	)
}

// bandwidthValues are the values that the kernel gets, as tc shows them.
func bandwidthValues() (rows []row) {
	for _, c := range []struct{ name, rate, burst, shown, differs string }{
		{"10 Mbit/s with a burst of 512 kbit", "10000000", "524288", "rate 10Mbit burst 64Kb lat 25ms", ""},
		{"1 Gbit/s with the burst that containerd sends", "1000000000", "4294967295", "rate 1Gbit burst 512Mb lat 25ms", ""},
		{"100 Gbit/s", "100000000000", "8000000000", "rate 100Gbit burst 1000000000b lat 25ms", ""},
		{"a rate of odd bits", "123457", "123457", "rate 123456bit burst 15432b lat 24.9ms", ""},
		{"1 Mbit/s with the burst that containerd sends", "1000000", "4294967295", "rate 1Mbit burst 34359738b lat 4.02e+03s", overflows},
		{"1 Mbit/s with the burst that CRI-O sends", "1000000", "34359738359", "rate 1Mbit burst 34359738b lat 4.02e+03s", overflows}, // of which tc shows the lower 32 bits
	} {
		rows = append(rows, row{name: "the kernel's values of " + c.name, differs: c.differs, test: func(l *lab) {
			web := l.attach(limited(fmt.Sprintf(`"ingressRate":%s,"ingressBurst":%s,"egressRate":%[1]s,"egressBurst":%[2]s`, c.rate, c.burst)), "web")
			web.limits(c.shown, c.shown)
		}})
	}
	return append(rows,
		row{name: "latency is how long packets may wait", differs: "it has no such key", test: func(l *lab) {
			c := l.attach(limited(bothWays+`,"latency":200`), "web")
			c.limits("rate 10Mbit burst 64Kb lat 148ms", "rate 20Mbit burst 128Kb lat 148ms") // and what the burst takes
			l.must(c.check())
		}},
		row{name: "with a latency and any burst the queue holds the largest packets", differs: "it has no such key", test: func(l *lab) {
			c := l.attach(limited(`"egressRate":1000000,"egressBurst":4294967295,"latency":1`), "web")
			c.limits("", "rate 1Mbit burst 34359738b limit 80000b")
			l.must(c.check())
		}},
		row{name: "the ifb has the MTU of the veth, is up, and has no queue besides", test: func(l *lab) {
			l.attach(conf(with(lan, "mtu", "1400"), bandwidth(fromContainer)), "web")
			l.has(&l.host.Namespace, l.ifbs()[0], "mtu", 1400, "txqlen", nil)
			l.shows(l.run("ip link show dev "+l.ifbs()[0]), "UP")
		}},
	)
}

func bandwidthSources() []row {
	const asked = `{"ingressRate":10000000,"ingressBurst":524288,"egressRate":20000000,"egressBurst":1048576}`
	const able = `"capabilities":{"bandwidth":true}`
	return []row{
		{name: "the runtime's limits are those of the capability", test: func(l *lab) {
			l.attach(limited(able), "web", capability("bandwidth", asked)).limits("rate 10Mbit burst 64Kb lat 25ms", "rate 20Mbit burst 128Kb lat 25ms")
		}},
		{name: "the runtime's limits don't count where the configuration has some", test: func(l *lab) {
			l.attach(limited(able+`,"ingressRate":5000000,"ingressBurst":524288`), "web", capability("bandwidth", asked)).limits("rate 5Mbit burst 64Kb lat 25ms", "")
		}},
		{name: "the runtime's limits don't count where the configuration has a rate of 0", test: func(l *lab) {
			l.attach(limited(able+`,"ingressRate":0`), "web", capability("bandwidth", asked)).limits("", "")
		}},
		{name: "without limits nothing is made, and the result is the one before", test: func(l *lab) {
			for i, keys := range []string{`"capabilities":{}`, able, `"ingressRate":0,"ingressBurst":0,"egressRate":0,"egressBurst":0`, `"runtimeConfig":{"bandwidth":{}}`} {
				c := l.attach(conf(bare), fmt.Sprint("web", i))
				before, previous := l.now(c), c.printed
				for _, verb := range []string{"ADD", "CHECK", "DEL"} {
					l.must(c.limit(verb, keys))
				}
				l.printed(c.printed, anyVeth.ReplaceAllString(previous, "vethX"))
				before.unchanged()
			}
		}},
		{name: "subnets, which 1.5 had, are not looked at, as since 1.6", test: func(l *lab) {
			l.attach(limited(bothWays+`,"unshapedSubnets":["10.44.0.0/24"]`), "web").limits("rate 10Mbit burst 64Kb lat 25ms", "rate 20Mbit burst 128Kb lat 25ms")
		}},
	}
}

func bandwidthResults() []row {
	const before = `{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}`
	const rest = `"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":2},{"address":"fd00:44::2/64","gateway":"fd00:44::1","interface":2}],
		"routes":[{"dst":"0.0.0.0/0","gw":"10.44.0.1"},{"dst":"::/0","gw":"fd00:44::1"}]}`
	return []row{
		knowsVersions("VERSION", "bandwidth", testutils.AllSpecVersions[2:]),
		{name: "the result has the ifb, by the reference's name", test: func(l *lab) {
			c := l.attach(limited(bothWays), "web")
			l.printed(c.printed, `{"cniVersion":"1.0.0","interfaces":[`+before+`,{"name":"`+ifb("lan", c.ID)+`","mac":"MAC"}],`+rest)
			l.same(l.ifbs(), []string{ifb("lan", c.ID)})
		}},
		{name: "the result without a limit of what the container sends is the one before", test: func(l *lab) {
			l.printed(l.attach(limited(toContainer), "web").printed, `{"cniVersion":"1.0.0","interfaces":[`+before+`],`+rest)
			l.same(l.ifbs(), []string(nil))
		}},
		{name: "the ifb of container cid1 on network net1 is bwpe8f6f419596f", test: func(l *lab) {
			l.run("ip link add bwpe8f6f419596f type ifb")
			l.must(l.verb("DEL", l.pod("web"), `{"type":"bandwidth","name":"net1"}`, noNetns, func(call *netlab.PluginCall) { call.ContainerID = "cid1" }))
			l.same(l.ifbs(), []string(nil))
		}},
		{name: "two interfaces of a container on one network have limits of their own", differs: oneIFB, test: func(l *lab) {
			first, second := l.twice(limited(bothWays), conf(second, bandwidth(bothWays)))
			l.same(len(l.ifbs()), 2)
			l.must(first.check(), second.check())
		}},
		{name: "two interfaces of a container on two networks have limits of their own", test: func(l *lab) {
			first, second := l.twice(limited(bothWays), conf(elsewhere, bandwidth(bothWays)).called("other"))
			l.same(len(l.ifbs()), 2)
			l.must(first.check(), second.check(), first.del(), second.check())
		}},
		{name: "behind ptp, portmap, tuning and firewall", test: func(l *lab) {
			ptp := `{"type":"ptp","ipMasq":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.46.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`
			n := conf(ptp, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"firewall"}`, `{"type":"tuning","mtu":1400}`, bandwidth(bothWays))
			c := l.attach(n, "web", ports("8080:80/tcp"))
			c.limits("rate 10Mbit burst 64Kb lat 25ms", "rate 20Mbit burst 128Kb lat 25ms")
			l.must(c.check(), c.del())
			l.same(l.ifbs(), []string(nil))
		}},
	}
}

// listsOnce reports whether GC of a plugin lists links more than once, on a node that has more of them than the kernel lists with one
// answer, and where others come and go.
func (l *lab) listsOnce(config string) error {
	var commands strings.Builder
	for i := range 100 {
		fmt.Fprintf(&commands, "link add ifb%d type ifb\nlink add crowd%[1]d type veth peer name other%[1]d\n", i)
	}
	l.host.Feed(l, commands.String(), "ip", "-batch", "-")
	l.host.Background(l, l.host.Command("sh", "-c", "while ip link add c0 type veth peer name c1; do ip link del c0; done"))
	sent := l.sends("GC", &container{lab: l}, with(config, "cniVersion", `"1.1.0"`, "cni.dev/valid-attachments", "[]"))
	if n := strings.Count(sent, "RTM_GETLINK, nlmsg_flags=NLM_F_REQUEST|NLM_F_DUMP"); n > 1 {
		return fmt.Errorf("it lists links %d times", n)
	}
	return nil
}

// sends returns what a plugin sends to the kernel, as strace shows it. It waits before it takes each answer. Go's own signals would
// have it hardly come on under strace on a slow machine.
func (l *lab) sends(verb string, c *container, config string) string {
	log := filepath.Join(l.TempDir(), "sent")
	r, _ := l.under("strace -E GODEBUG=asyncpreemptoff=1 -f -qq -o "+log+" -e trace=sendto,sendmsg,recvfrom -e inject=recvfrom:delay_enter=10000", verb, c, config)
	if r.ExitCode > 0 {
		l.Fatal(failure(r))
	}
	sent, err := os.ReadFile(log)
	l.must(err)
	return string(sent)
}

// killedAt is exec of a plugin that is killed before its n-th message to the kernel, whichever thread sends it. It is false if there
// were fewer.
func (l *lab) killedAt(n int, verb string, c *container, config string) bool {
	plugin, call := l.prepare(verb, c, config)
	cmd := l.host.PluginCommand(l, plugin, call)
	log := filepath.Join(l.TempDir(), "sent")
	strace := l.host.Command("strace", "-f", "-b", "execve", "-qq", "-o", log, "-e", "trace=sendto,sendmsg",
		"-e", "inject=sendto,sendmsg:delay_enter=50000", cmd.Path)
	strace.Env, strace.Stdin = cmd.Env, cmd.Stdin
	ended := make(chan error, 1)
	go func() {
		_, err := l.host.Output(strace)
		ended <- err
	}()
	sent := regexp.MustCompile(`(?m)^(\d+) +send(to|msg)\(`)
	for ; ; netlab.Pause(time.Millisecond) {
		select {
		case err := <-ended:
			return err != nil
		default:
		}
		text, _ := os.ReadFile(log)
		if calls := sent.FindAllSubmatch(text, -1); len(calls) >= n {
			pid, err := strconv.Atoi(string(calls[n-1][1]))
			l.must(err)
			_ = syscall.Kill(pid, syscall.SIGKILL)
			return <-ended != nil
		}
	}
}

// second is a network for another interface of a container on lan.
var second = with(lan, "isDefaultGateway", "false", "isGateway", "true")

// elsewhere is second with another bridge and subnet.
var elsewhere = strings.NewReplacer("lan0", "lan1", "10.44.", "10.47.", "fd00:44:", "fd00:47:").Replace(second)

// twice attaches a container twice, as eth0 and eth1.
func (l *lab) twice(one, two network) (first, second *container) {
	first = l.attach(one, "web")
	second = first.another()
	l.must(second.add(two, ifname("eth1")))
	return first, second
}

func bandwidthRefusals() (rows []row) {
	for _, c := range []struct{ name, keys, names, differs string }{
		{"a rate without a burst", `"ingressRate":1000000`, "if rate is set, burst must also be set", ""},
		{"a burst without a rate", `"egressBurst":1000000`, "if burst is set, rate must also be set", ""},
		{"a burst of 4 GB", `"ingressRate":1000000,"ingressBurst":34359738360`, "burst", ""},
		{"a rate of the runtime without a burst", `"runtimeConfig":{"bandwidth":{"egressRate":1000000}}`, "if rate is set, burst must also be set", ""},
		{"a rate that is a text", `"ingressRate":"1M","ingressBurst":1000000`, "ingressRate", ""},
		{"a rate below 0", `"ingressRate":-1,"ingressBurst":1000000`, "ingressRate", ""},
		{"a rate below a byte a second", `"ingressRate":7,"ingressBurst":1000000`, "ingressRate", "it divides by 0, and the kernel refuses what comes of it"},
		{"a burst that no whole packet fits into", `"ingressRate":1000000,"ingressBurst":8000`, "12112", "it takes it, and the kernel drops all packets that are larger"},
		{"a burst of the other way that no whole packet fits into", `"egressRate":1000000,"egressBurst":8000`, "12112", "it takes it, and the kernel drops all packets that are larger"},
		{"a latency of 0", bothWays + `,"latency":0`, "latency", "it has no such key"},
	} {
		rows = append(rows, row{name: c.name + " is refused, and nothing changes", differs: c.differs, test: func(l *lab) {
			web := l.attach(conf(bare), "web")
			l.now(web).refused(web.limit("ADD", c.keys), c.names)
		}})
	}
	return append(rows,
		row{name: "CHECK succeeds after ADD has taken a rate of a few bits, or else ADD refuses it", test: func(l *lab) {
			if l.suite.reference {
				l.foreign("it names no least rate")
			}
			for _, rate := range []string{"8", "16", "24", "32", "40", "43", "44", "48", "64", "100"} {
				c := l.pod("web" + rate)
				err := c.add(limited(`"ingressRate":` + rate + `,"ingressBurst":12112`))
				if err == nil {
					l.must(c.check())
				} else {
					l.refused(err, "ingressRate")
				}
			}
		}},
		row{name: "bandwidth that stands first in its list is refused", test: func(l *lab) {
			l.refused(l.verb("ADD", l.pod("web"), bandwidth(bothWays)), "must be called as chained plugin")
		}},
		row{name: "bandwidth that stands first in its list and has no limits is refused", differs: "it crashes", test: func(l *lab) {
			l.refused(l.verb("ADD", l.pod("web"), bandwidth(`"capabilities":{}`)), "must be called as chained plugin")
		}},
		row{name: "an interface that is no veth is refused, and nothing changes", test: func(l *lab) {
			c := l.pod("web")
			c.run("ip link add eth0 type bridge")
			c.printed = c.previous()
			l.now(c).refused(c.limit("ADD", bothWays), "eth0", "veth")
		}},
		row{name: "an interface that is made on the container's veth has the limits of that", differs: "it refuses interfaces that are no veth", test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			end := c.hostEnd()
			for _, change := range []string{"set eth0 down", "set eth0 name uplink", "add eth0 link uplink type macvlan mode bridge"} {
				c.run("ip link " + change)
			}
			l.must(c.limit("ADD", bothWays))
			l.shows(l.tbf(end), "rate")
			l.same(len(l.ifbs()), 1)
		}},
		row{name: "an interface that is no veth is refused with code 7", differs: always999, test: func(l *lab) {
			c := l.pod("web")
			c.run("ip link add eth0 type bridge")
			c.printed = c.previous()
			l.code(c.limit("ADD", bothWays), 7, "eth0", "veth")
		}},
		row{name: "a veth whose other end is not on the node is refused, and nothing changes", test: func(l *lab) {
			c := l.fresh("web")
			c.printed = c.previous()
			l.now(c).refused(c.limit("ADD", bothWays), "veth")
		}},
		row{name: "an interface that there is not is refused, and nothing changes", test: func(l *lab) {
			c := l.pod("web")
			c.printed = c.previous()
			l.now(c).refused(c.limit("ADD", bothWays), "eth0")
		}},
		row{name: "a host end that the previous result does not name is left alone", test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			inside := with(c.previous(), "interfaces", `[{"name":`+text(c.hostEnd())+`,"sandbox":`+text(c.Path())+`}]`) // a link of the container's
			for _, c.printed = range []string{c.previous(), inside} {
				l.now(c).refused(c.limit("ADD", bothWays), "no veth peer")
			}
		}},
		row{name: "the host end of another network is left alone when the container swaps the names of its interfaces", test: func(l *lab) {
			first, second := l.twice(conf(bare), conf(with(elsewhere, "capabilities", "{}")).called("other"))
			end := second.hostEnd()
			for _, swap := range []string{"eth0 down", "eth1 down", "eth0 name eth2", "eth1 name eth0", "eth2 name eth1"} {
				first.run("ip link set " + swap)
			}
			_ = first.limit("ADD", bothWays) // it fails, or limits its own
			l.same(l.tbf(end), "")
			l.lacks(l.run("tc qdisc show dev "+end), "ingress")
			l.run("ip link set " + end + " down") // CHECK looks at its own, too
			if err := first.limit("CHECK", bothWays); err == nil {
				l.same(len(l.ifbs()), 1)
			}
		}},
		row{name: "the veth of another container is left alone, whatever the own one says of its interface", differs: "it believes the container", test: func(l *lab) {
			evil, victim := l.attach(conf(bare), "evil"), l.pod("victim")
			l.asReference(victim, "vethvictim", "")
			evil.run("ip link del eth0", "ip link add p0 index 4242 type veth peer name eth0")
			evil.printed = with(evil.previous(), "interfaces", `[{"name":"vethvictim"},{"name":"eth0","sandbox":`+text(evil.Path())+`}]`)
			l.now(victim).refused(evil.limit("ADD", bothWays), "eth0")
		}},
	)
}

func bandwidthFailures() []row {
	return []row{
		{name: "a second ADD is refused, and the limits of the first one stay", test: func(l *lab) {
			for i, keys := range []string{toContainer, fromContainer, bothWays} {
				c := l.attach(conf(bare), fmt.Sprint("web", i))
				l.must(c.limit("ADD", keys))
				l.now(c).refused(c.limit("ADD", keys))
			}
		}},
		{name: "a host end that sends by somebody else's queue is refused, and nothing changes", test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			l.run("tc qdisc add dev " + c.hostEnd() + " root handle 5: tbf rate 1mbit burst 10kb latency 25ms")
			l.now(c).refused(c.limit("ADD", bothWays), "qdisc")
		}},
		{name: "a host end that filters what it receives is refused, and nothing changes", differs: leavesParts, test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			l.run("tc qdisc add dev " + c.hostEnd() + " ingress")
			l.now(c).refused(c.limit("ADD", bothWays), c.hostEnd())
		}},
		{name: "ADD after an ADD that failed succeeds", differs: leavesParts, test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			l.run("tc qdisc add dev " + c.hostEnd() + " ingress")
			l.refused(c.limit("ADD", bothWays))
			l.run("tc qdisc del dev " + c.hostEnd() + " ingress")
			l.must(c.limit("ADD", bothWays), c.limit("CHECK", bothWays))
		}},
		{name: "a link with the ifb's name that is something else is left alone", differs: "it takes the name for its own", test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			l.run("ip link add " + ifb("lan", c.ID) + " type bridge")
			l.must(c.limit("ADD", bothWays), c.limit("CHECK", bothWays), c.limit("DEL", bothWays))
			l.same(l.ifbs(), []string(nil))
			l.has(&l.host.Namespace, ifb("lan", c.ID), "operstate", "DOWN")
		}},
	}
}

func bandwidthDel() (rows []row) {
	for _, c := range []struct {
		name, keys, differs string
		harm                func(l *lab, c *container)
		del                 func(c *container) error
	}{
		{name: "DEL of a list leaves nothing"},
		{name: "DEL of a list with the namespace gone leaves nothing", harm: func(_ *lab, c *container) { c.Delete(c.lab) }},
		{name: "DEL of a list with a file left at the namespace's path leaves nothing", harm: func(_ *lab, c *container) { c.DeleteKeepFile(c.lab) },
			differs: "the DEL of its bridge fails then"},
		{name: "DEL of a list with the namespace gone and no result leaves nothing", harm: func(l *lab, c *container) { c.Delete(l); l.forget() }},
		{name: "DEL of a list without the namespace's path and without a result leaves nothing", del: (*container).delBare,
			differs: "the DEL of its bridge leaves the veth pair to the namespace"},
		{name: "DEL of a list with the interface gone leaves nothing", harm: func(_ *lab, c *container) { c.run("ip link del eth0") }},
		{name: "DEL of a list whose limits are gone from the configuration leaves nothing", harm: func(_ *lab, c *container) { c.network = conf(unmasked, bandwidth(`"latency":25`)) }},
		{name: "DEL of a list whose limits became wrong leaves nothing", differs: "its DEL fails when it can't use the configuration",
			harm: func(_ *lab, c *container) {
				c.network = conf(unmasked, bandwidth(`"ingressRate":"fast","egressBurst":5`))
			}},
		{name: "DEL of a list whose ifb somebody deleted leaves nothing", harm: func(l *lab, c *container) { l.run("ip link del " + ifb("lan", c.ID)) }},
		{name: "DEL of a list twice leaves nothing", harm: func(l *lab, c *container) { l.must(c.del()) }},
	} {
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			n := conf(unmasked, bandwidth(bothWays))
			before := l.warmed(n)
			web := l.attach(n, "web")
			if c.harm != nil {
				c.harm(l, web)
			}
			del := web.del
			if c.del != nil {
				del = func() error { return c.del(web) }
			}
			l.must(del())
			before.unchanged()
		}})
	}
	return append(rows,
		row{name: "DEL of what was never added does nothing", test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			l.now(c).unchangedBy(c.limit("DEL", bothWays))
		}},
		row{name: "DEL without the namespace, a result and limits deletes the ifb", test: func(l *lab) {
			c := l.attach(limited(bothWays), "web")
			l.must(l.verb("DEL", c, `{"type":"bandwidth"}`, noNetns))
			l.same(l.ifbs(), []string(nil))
		}},
		row{name: "DEL deletes the ifb that the reference made", test: func(l *lab) {
			for _, previous := range []string{"", `,"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"NAME","mac":"02:00:00:00:00:01"}]}`} {
				c := l.pod("web" + fmt.Sprint(len(previous)))
				name := ifb("lan", c.ID)
				l.run("ip link add " + name + " up type ifb")
				l.must(l.verb("DEL", c, `{"type":"bandwidth"`+strings.Replace(previous, "NAME", name, 1)+`}`, noNetns))
				l.same(l.ifbs(), []string(nil))
			}
		}},
		row{name: "DEL after an ADD that was killed at any message to the kernel deletes the ifb", differs: oneIFB, test: func(l *lab) {
			first, second := l.twice(conf(bare), conf(with(second, "capabilities", "{}")))
			l.must(first.limit("ADD", bothWays)) // so that the other one's ifb has the other name
			for n, wasKilled := 1, true; wasKilled && n < 100; n++ {
				config := with(bandwidth(fromContainer), "prevResult", second.printed)
				wasKilled = l.killedAt(n, "ADD", second, config)
				l.must(second.limit("DEL", fromContainer, noNetns))
				l.same(l.ifbs(), []string{ifb("lan", first.ID)})
				if end := second.hostEnd(); strings.Contains(l.run("tc qdisc show dev "+end), "ingress") {
					l.run("tc qdisc del dev " + end + " ingress") // goes with the veth pair
				}
			}
		}},
		row{name: "DEL of one of two interfaces leaves the other's limits", differs: oneIFB, test: func(l *lab) {
			for _, order := range [][]int{{0, 1}, {1, 0}} {
				first, second := l.twice(limited(bothWays), conf(second, bandwidth(bothWays)))
				both := []*container{first, second}
				l.must(both[order[0]].delBare(), both[order[1]].check(), both[order[1]].delBare())
				l.same(l.ifbs(), []string(nil))
				first.Delete(l)
			}
		}},
		row{name: "DEL leaves the limits of another network and of another container", test: func(l *lab) {
			c, peer := l.attach(limited(bothWays), "web"), l.attach(limited(bothWays), "peer")
			l.must(c.del(), l.verb("DEL", peer, `{"type":"bandwidth","name":"elsewhere"}`), peer.check())
		}},
		row{name: "DEL leaves a link of another kind that has the ifb's name", differs: "its DEL deletes it", test: func(l *lab) {
			c := l.pod("web")
			l.run("ip link add " + ifb("lan", c.ID) + " type bridge")
			l.must(l.verb("DEL", c, `{"type":"bandwidth"}`))
			l.has(&l.host.Namespace, ifb("lan", c.ID), "operstate", "DOWN")
		}},
	)
}

// unmasked is lan without masquerading, which the reference plugin leaves behind.
var unmasked = with(lan, "ipMasq", "false")

func bandwidthGC() []row {
	net := conf(bandwidth(bothWays))
	return []row{
		{name: "GC deletes the ifbs of attachments that are not valid", differs: noGC, test: func(l *lab) {
			kept, lost := l.attach(limited(bothWays), "kept"), l.attach(limited(bothWays), "lost")
			lost.Delete(l)
			l.must(l.gc(net, kept))
			l.same(l.ifbs(), []string{ifb("lan", kept.ID)})
			l.must(kept.check(), l.gc(net))
			l.same(l.ifbs(), []string(nil))
		}},
		{name: "GC deletes the ifbs of a network with a very long name, and leaves those of one that begins the same", differs: noGC, test: func(l *lab) {
			long := strings.Repeat("n", 110)
			l.attach(limited(bothWays).called(long+"1"), "lost")
			kept := l.attach(conf(elsewhere, bandwidth(bothWays)).called(long+"2"), "kept")
			l.must(l.gc(net.called(long+"2"), kept))
			l.same(len(l.ifbs()), 2)
			l.must(l.gc(net.called(long + "1")))
			l.same(l.ifbs(), []string{ifb(long+"2", kept.ID)})
		}},
		{name: "GC deletes the ifb of another interface of a valid container", differs: noGC, test: func(l *lab) {
			first, second := l.twice(limited(bothWays), conf(second, bandwidth(bothWays)))
			l.must(l.gc(net, second), second.check())
			l.same(len(l.ifbs()), 1)
			l.must(first.del(), second.check())
		}},
		{name: "GC leaves the ifbs of another network", test: func(l *lab) {
			c := l.attach(limited(bothWays).called("lan2"), "web")
			l.must(l.gc(net), c.check())
		}},
		{name: "GC leaves links that are somebody else's", test: func(l *lab) {
			for _, name := range []string{"ifb7", "bwpass", "bwp0123456789"} {
				l.run("ip link add " + name + " type ifb")
			}
			l.run("ip link add bwp0123456789ab type bridge")
			l.attach(conf(lan), "web")
			l.now().unchangedBy(l.gc(net))
		}},
		{name: "GC deletes an ifb of the reference that nothing is sent into", differs: noGC, test: func(l *lab) {
			l.run("ip link add " + ifb("lan", "gone") + " up type ifb")
			l.run("tc qdisc add dev " + ifb("lan", "gone") + " root handle 1: tbf rate 1mbit burst 10kb latency 25ms")
			l.must(l.gc(net))
			l.same(l.ifbs(), []string(nil))
		}},
		{name: "GC leaves an ifb of the reference whose ADD is under way, which limits it last", test: func(l *lab) {
			for _, network := range []string{"lan", "lan2"} {
				l.run("ip link add " + ifb(network, "web") + " up type ifb")
			}
			l.must(l.gc(net))
			l.same(len(l.ifbs()), 2)
		}},
		{name: "GC deletes the ifb of an ADD that was killed at any message to the kernel, and GC of another network leaves it", differs: noGC, test: func(l *lab) {
			c := l.attach(conf(bare), "web")
			var others []*container // so many that few bytes can't tell them all apart
			for i := range 3000 {
				others = append(others, &container{Pod: &netlab.Pod{ID: fmt.Sprint("other", i)}, runtime: c.runtime})
			}
			for n, wasKilled := 1, true; wasKilled && n < 100; n++ {
				wasKilled = l.killedAt(n, "ADD", c, with(bandwidth(fromContainer), "prevResult", c.printed))
				left := l.ifbs()
				l.must(l.gc(net.called("lan2")))
				l.same(l.ifbs(), left)
				l.must(l.gc(net, c))
				l.same(l.ifbs(), left)
				l.must(l.gc(net, others...))
				l.same(l.ifbs(), []string(nil))
				if strings.Contains(l.run("tc qdisc show dev "+c.hostEnd()), "ingress") {
					l.run("tc qdisc del dev " + c.hostEnd() + " ingress") // goes with the veth pair
				}
			}
		}},
		{name: "GC lists links once, however many come and go", test: func(l *lab) { l.must(l.listsOnce(bandwidth(bothWays))) }},
		{name: "GC leaves ifbs of the reference that something is sent into, limited or not", test: func(l *lab) {
			web, other := l.attach(conf(lan), "web"), l.attach(conf(unmasked).called("lan2"), "other")
			for i, c := range []*container{web, other} {
				name := ifb([]string{"lan", "lan2"}[i], c.ID)
				l.run("ip link add "+name+" type ifb", "tc qdisc add dev "+c.hostEnd()+" ingress")
				l.run("tc filter add dev " + c.hostEnd() + " parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev " + name)
			}
			l.run("tc qdisc add dev " + ifb("lan", web.ID) + " root handle 1: tbf rate 1mbit burst 10kb latency 25ms")
			l.now().unchangedBy(l.gc(net, web))
		}},
	}
}

func bandwidthCheck() []row {
	const noTBF = "its CHECK compares limits only where there are some"
	const other = "root handle 1: tbf rate 5mbit burst 64kb latency 25ms"
	limit := func(l *lab, _ ...string) *container { return l.attach(limited(bothWays), "web") }
	onIFB := func(before, after string) func(*lab, *container) {
		return func(l *lab, c *container) { l.run(before + ifb("lan", c.ID) + after) }
	}
	rows := checks("CHECK finds ", limit, (*container).check, []event{
		{name: "another limit of what the container receives", happens: onHost("tc qdisc replace dev END " + other)},
		{name: "another burst", happens: onHost("tc qdisc replace dev END root handle 1: tbf rate 10mbit burst 65kb latency 25ms")},
		{name: "another latency", happens: onHost("tc qdisc replace dev END root handle 1: tbf rate 10mbit burst 64kb latency 26ms")},
		{name: "no limit of what the container receives", happens: onHost("tc qdisc del dev END root"), differs: noTBF},
		{name: "another limit of what the container sends", happens: onIFB("tc qdisc replace dev ", " "+other)},
		{name: "no limit of what the container sends", happens: onIFB("tc qdisc del dev ", " root"), differs: noTBF},
		{name: "no ifb", happens: onIFB("ip link del ", "")},
		{name: "an ifb that is down", happens: onIFB("ip link set ", " down"), differs: "its CHECK does not look whether the ifb is up"},
		{name: "that nothing is sent into the ifb", happens: onHost("tc filter del dev END parent ffff:"), differs: "its CHECK does not look at the filter"},
		{name: "that nothing filters what the host end receives", happens: onHost("tc qdisc del dev END ingress"), differs: "its CHECK does not look at the filter"},
	})
	return append(rows,
		row{name: "CHECK finds limits that are not those of the configuration", test: func(l *lab) {
			c := l.attach(limited(bothWays), "web")
			c.network = limited(`"ingressRate":1000000,"ingressBurst":524288`)
			l.refused(c.check())
		}},
		row{name: "CHECK leaves alone what the configuration does not limit", test: func(l *lab) {
			c := l.attach(limited(fromContainer), "web")
			l.run("tc qdisc add dev " + c.hostEnd() + " root handle 1: tbf rate 5mbit burst 64kb latency 25ms")
			l.must(c.check())
		}},
		row{name: "CHECK of limits with the burst that containerd sends succeeds", test: func(l *lab) {
			l.must(l.attach(limited(`"ingressRate":1000000,"ingressBurst":4294967295,"egressRate":1000000,"egressBurst":4294967295`), "web").check())
		}},
		row{name: "CHECK asks for the qdiscs of its own links only: a list of all lacks some when others go", differs: "it lists all", test: func(l *lab) {
			c := l.attach(limited(bothWays), "web")
			l.lacks(l.sends("CHECK", c, with(bandwidth(bothWays), "prevResult", c.printed)), "RTM_GETQDISC, nlmsg_flags=NLM_F_REQUEST|NLM_F_DUMP")
		}},
		row{name: "CHECK finds a burst of the reference that has no room for a packet", differs: "it makes it so", test: func(l *lab) {
			c := l.attach(limited(`"ingressRate":1000000000,"ingressBurst":12112`), "web")
			l.must(c.check())
			l.run("tc qdisc replace dev " + c.hostEnd() + " root handle 1: tbf rate 1gbit burst 1500b limit 3126514")
			l.refused(c.check(), "1514")
		}},
		row{name: "CHECK changes nothing", test: func(l *lab) {
			c := l.attach(limited(bothWays), "web")
			l.now(c).unchangedBy(c.check())
		}},
		row{name: "CHECK without a previous result is refused", test: func(l *lab) {
			l.refused(l.verb("CHECK", l.attach(limited(bothWays), "web"), bandwidth(bothWays)), "must be called as", "chained plugin")
		}},
	)
}

func bandwidthStatus() []row {
	return append(needsCapabilities(bandwidth(bothWays)), []row{
		{name: "STATUS with limits succeeds, and leaves nothing", test: func(l *lab) { l.now().unchangedBy(l.status(conf(bandwidth(bothWays)))) }},
		{name: "STATUS with limits makes no network namespace", test: func(l *lab) {
			config := with(bandwidth(bothWays), "cniVersion", `"1.1.0"`)
			r, _ := l.under("strace -f -qq -o /dev/null -e trace=unshare -e inject=unshare:error=ENOSPC", "STATUS", nil, config)
			l.must(failure(r))
		}},
		{name: "STATUS has code 50 where the kernel says that it has no such filter", differs: noStatus, test: func(l *lab) {
			config := with(bandwidth(bothWays), "cniVersion", `"1.1.0"`)
			r, _ := l.under("strace -f -qq -o /dev/null -e trace=recvfrom -e inject=recvfrom:error=ENOENT", "STATUS", nil, config)
			l.code(failure(r), 50, "the kernel has no token bucket filter", "CONFIG_NET_SCH_TBF")
		}},
		{name: "STATUS without limits succeeds", test: func(l *lab) { l.must(l.status(conf(bandwidth(`"capabilities":{"bandwidth":true}`)))) }},
		{name: "STATUS finds a rate without a burst", differs: noStatus, test: func(l *lab) {
			l.refused(l.status(conf(bandwidth(`"ingressRate":1000000`))), "ingressBurst")
		}},
		{name: "STATUS finds a latency that is none", differs: noStatus, test: func(l *lab) {
			l.refused(l.status(conf(bandwidth(`"latency":-1`))), "latency")
		}},
	}...)
}
