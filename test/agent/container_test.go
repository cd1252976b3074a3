package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// own is something that a container does with its network on purpose.
type own struct{ name, does string }

var owns = []own{
	{"vpn", `ip tuntap add tun0 mode tun; ip link set tun0 up; ip address add 10.200.0.2/24 dev tun0; ip -6 address add fd00:200::2/64 dev tun0 nodad
		ip route del default; ip -6 route del default
		ip route add default dev tun0; ip -6 route add default dev tun0`},
	{"fence", "ip link set eth0 down"},
	{"killswitch", `ip route replace unreachable default; ip -6 route del default; ip -6 route add blackhole default
		ip rule add to 198.51.100.0/24 prohibit; echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6`},
}

// ways prints where the packets of forty flows would go.
const ways = `for i in $(seq 20); do for to in 203.0.113.$i 2001:db8:7::$i; do
	ip -o route get $to 2>&1 | grep -o ' dev [^ ]*' || echo " nowhere"; done; done | sort | uniq -c`

// TestContainersOwn: what a container does inside on purpose stays as it is, whatever is repaired around it: by the agent after a flush on the
// host, after looks at everything, and by cnictl repair. That is said once, and is no failure.
func TestContainersOwn(t *testing.T) {
	t.Parallel()
	host, outside := newHost(t)
	other := harmtest.Attach(t, host, usual, "other", port(8000))
	other.Serve(t)
	a := start(t, host, "--every", "1s")
	containers, inside, goes := map[string]*harmtest.Container{}, map[string]*netlab.Snapshot{}, map[string]string{}
	for i, o := range owns {
		c := harmtest.Attach(t, host, usual, o.name, port(8001+i))
		before := c.MustRun(t, "sh", "-c", ways)
		harmtest.Script(t, &c.Namespace, o.does)
		containers[o.name], inside[o.name], goes[o.name] = c, c.Snapshot(t), c.MustRun(t, "sh", "-c", ways)
		t.Logf("%s: flows before\n%safter\n%s%s", o.name, before, goes[o.name], c.MustRun(t, "sh", "-c", "ip -o link show eth0; ip route; ip -6 route"))
	}
	unchanged := func(after string) {
		t.Helper()
		for name, c := range containers {
			if diff := inside[name].Diff(c.Snapshot(t)); diff != "" {
				t.Errorf("%s: after %s inside:\n%s", name, after, diff)
			}
			if now := c.MustRun(t, "sh", "-c", ways); now != goes[name] {
				t.Errorf("%s: after %s flows go\n%sand went\n%s", name, after, now, goes[name])
			}
		}
	}
	isSaid := func(name string) bool {
		lines := a.log.lines("is left alone")
		return strings.Contains(strings.Join(lines, ""), containers[name].ID)
	}
	netlab.Until(t, "it to be said", func() bool { return isSaid("vpn") && isSaid("fence") && isSaid("killswitch") })
	unchanged("looks at everything")

	harmtest.Script(t, &host.Namespace, "nft flush ruleset; ip link set "+containers["vpn"].End+" nomaster")
	netlab.Until(t, "the host's side to be back", func() bool {
		rules := host.MustRun(t, "nft", "list", "ruleset")
		port := host.MustRun(t, "ip", "-o", "link", "show", containers["vpn"].End)
		return strings.Contains(rules, "8000") && strings.Contains(rules, "8001") && strings.Contains(rules, "10.88.0.2") && strings.Contains(port, "master demo0")
	})
	unchanged("a flush on the host")
	harmtest.Dial(t, &outside.Namespace, netlab.HostIPv4+":8000")
	a.stop()

	host.MustRun(t, "nft", "flush", "ruleset")
	code, printed := cnictl(t, host, "repair")
	t.Log(printed)
	if code != 0 || !strings.Contains(printed, "inside the container, and cnibox leaves it alone") {
		t.Errorf("repair: exit code %d\n%s", code, printed)
	}
	unchanged("repair")
	heard := map[string]bool{}
	for _, line := range a.log.lines("is left alone") { // of a container that is seen before it has done all, something else is said first
		_, what, _ := strings.Cut(line, "msg=")
		if heard[what] {
			t.Errorf("it is said twice: %s", what)
		}
		heard[what] = true
	}
}

// TestManyRoutes: containers with very many routes keep nobody waiting after a flush, though they are looked into, too, and the agent does not
// keep their routes.
func TestManyRoutes(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	const others, big = 10, 2
	routes := chosen(20_000, 200_000)
	all := crowd(t, host, usual, others)
	for i := range big {
		list := strings.ReplaceAll(harmtest.Entered(harmtest.Bridge+","+harmtest.Ports), `"demo"`, `"entered"`)
		c := harmtest.Attach(t, host, strings.NewReplacer("demo0", "entered0", "10.88.0", "10.89.0", "fd00:88", "fd00:89").Replace(list), fmt.Sprint("big", i), port(9000+i))
		var batch strings.Builder
		for n := range routes {
			fmt.Fprintf(&batch, "route add 11.%d.%d.%d/32 dev eth0\n", n>>16, n>>8&255, n&255)
		}
		c.Feed(t, batch.String(), "ip", "-batch", "-")
	}
	a := start(t, host, "--every", "1h")
	before, u := host.Snapshot(t), a.use()
	begun := time.Now()
	harmtest.Script(t, &host.Namespace, "nft flush ruleset")
	netlab.Until(t, "the others to be mended", func() bool {
		rules := host.MustRun(t, "nft", "list", "ruleset")
		for i := range all {
			if !strings.Contains(rules, strconv.Itoa(8000+i)) {
				return false
			}
		}
		return true
	})
	took := time.Since(begun)
	netlab.Until(t, "all to be back", func() bool { return before.Diff(host.Snapshot(t), ofAgent...) == "" })
	t.Logf("%d containers with %d routes each: %d others were mended after %v; the agent had %d MiB before, and at most %s", big, routes, others, took.Round(time.Millisecond), u.resident, a.peak())
	host.MustRun(t, "nft", "flush", "ruleset")
	if code, printed := cnictl(t, host, "repair", "demo"); code != 0 {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}

// peak returns how much memory the agent has had at most.
func (a *running) peak() string {
	a.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// TestLeftAlone: a container, or a network, that is to be left alone gets nothing back, by nobody, until that is taken back.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	left, other := harmtest.Attach(t, host, usual, "left", port(8000)), harmtest.Attach(t, host, usual, "other", port(8001))
	none := strings.NewReplacer(`"name"`, `"repair": "none", "name"`, "demo", "second", "10.88.0", "10.89.0", "fd00:88", "fd00:89").Replace(usual)
	harmtest.Attach(t, host, none, "none", port(8002))
	host.MustRun(t, "sh", "-c", "touch -d '1 hour' "+resultsDir+"/*"+left.ID+"*") // as when the clock was set back since
	if code, printed := cnictl(t, host, "repair", "--leave", left.ID); code != 0 || !strings.Contains(printed, "is left alone") {
		t.Fatalf("exit code %d\n%s", code, printed)
	}
	if code, printed := cnictl(t, host, "repair", "--leave", "demo"); code == 0 {
		t.Errorf("a network is left alone\n%s", printed)
	}
	a := start(t, host, "--every", "1h")
	isPublished := func(number int) bool {
		return strings.Contains(host.MustRun(t, "nft", "list", "ruleset"), strconv.Itoa(number))
	}
	harmtest.Script(t, &host.Namespace, "nft flush ruleset")
	netlab.Until(t, "the other to be mended", func() bool { return isPublished(8001) })
	netlab.Until(t, "the end of the repair", func() bool { return a.log.count("is left alone") >= 2 })
	code, printed := cnictl(t, host, "repair")
	if code != 0 || strings.Count(printed, "left alone  ") != 2 {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if isPublished(8000) || isPublished(8002) {
		t.Error("what is left alone was repaired")
	}
	for _, remedy := range []string{"`cnictl repair --leave=false " + left.ID + "`", "remove `\"repair\": \"none\"` from the network"} {
		if strings.Count(printed, remedy) != 2 { // of its two plugins
			t.Errorf("%q is not what can be done about one of them:\n%s", remedy, printed)
		}
	}
	if code, printed := cnictl(t, host, "repair", "--leave=false", left.ID); code != 0 {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if code, printed := cnictl(t, host, "repair"); code != 0 || !isPublished(8000) || isPublished(8002) {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	_ = other

	cnictl(t, host, "repair", "--leave", left.ID)
	if err := host.DelList(usual, left.RuntimeConf(port(8000))); err != nil {
		t.Fatal(err)
	}
	if _, err := host.AddList(usual, left.RuntimeConf(port(8000))); err != nil {
		t.Fatal(err)
	}
	harmtest.Script(t, &host.Namespace, "nft flush ruleset")
	if code, printed := cnictl(t, host, "repair"); code != 0 || !isPublished(8000) {
		t.Errorf("what is made later is left alone: exit code %d\n%s", code, printed)
	}
	if err := host.DelList(usual, left.RuntimeConf(port(8000))); err != nil {
		t.Fatal(err)
	}
	cnictl(t, host, "repair")
	if files := host.MustRun(t, "ls", "/run/cnibox/left-alone"); files != "" {
		t.Errorf("kept of a container that is gone: %s", files)
	}
}
