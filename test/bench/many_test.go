package bench

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// BenchmarkMany measures 250 calls at once, and nodes with up to 10,000 attachments. `make bench-many` runs it in parts of some minutes each,
// whose figures are put together in the report's directory.
//
//	go test ./test/bench -run '^$' -bench Many/many-ptp -benchtime 1x -args -attachments 0,1000
func BenchmarkMany(b *testing.B) {
	r := newRunner(b, chosenProfile(b))
	routed := object{"ipMasq": true, "ipam": hostLocal}
	for _, s := range []scenario{
		{"many-once", (*runner).once},
		{"many-ptp", many("ptp", network{routed, portmap})},
		{"many-bridge", many("bridge", network{with(routed, object{"bridge": "cni0", "isGateway": true}), portmap})},
		{"many-macvlan", many("macvlan", network{{"master": "lan0", "ipam": hostLocal}})},
	} {
		r.run(b, s)
	}
	if text := r.results.Section(report.WholeNode); text != "" {
		fmt.Printf("\n%s\n", text)
	}
	r.saveMany(b)
}

// saveMany adds what was measured so far to the report: what comes takes minutes, and may fail.
func (r *runner) saveMany(b *testing.B) {
	b.Helper()
	if *reportDir == "" || b.Failed() {
		return
	}
	r.results.Facts = r.facts(b)
	if err := r.results.MergeMany(*reportDir); err != nil {
		b.Fatal(err)
	}
}

// with returns an object with more members, or with others.
func with(o, more object) object {
	both := maps.Clone(o)
	maps.Copy(both, more)
	return both
}

// typed returns the network with a first plugin of a kind, and a prefix before the names of all plugins.
func (n network) typed(prefix, kind string) (list network) {
	for i, p := range n {
		if i == 0 {
			p = with(p, object{"type": kind})
		}
		p = with(p, object{"type": prefix + p["type"].(string)})
		if ipam, is := p["ipam"].(object); is {
			p["ipam"] = with(ipam, object{"type": prefix + ipam["type"].(string)})
		}
		list = append(list, p)
	}
	return list
}

// many measures one more attachment on a node that fills up, and what asks about the whole node. The reference plugins make one more on the same
// node: it has as many links and leases, but not the rules that so many attachments of theirs have.
func many(kind string, n network) func(*runner, *testing.B, string) {
	const prefix = "reference-"
	return func(r *runner, b *testing.B, scenario string) {
		chain := choose(report.Chain)
		if len(chain) == 0 {
			return
		}
		s := r.newSubject(b, chain[0], n.typed("", kind), "")
		s.install(b, s.Host, r.programs, "ptp", "macvlan")
		s.MustRun(b, "sh", "-c", "ip link add lan0 up type veth peer name lan1 && ip link set lan1 up && mkdir -p /etc/cni/net.d")
		s.Feed(b, string(s.list.Bytes), "sh", "-c", "cat >/etc/cni/net.d/10-pods.conflist")
		subjects := []*subject{s}
		for _, i := range choose(report.Cnibox, report.Reference) {
			other := *s
			other.implementation, other.port = i, s.port+len(subjects)
			other.list = n.typed("", kind).list(b, false)
			if i.name == report.Reference {
				other.list = n.typed(prefix, kind).list(b, false)
				other.list.Name = prefix + networkName
				for _, name := range []string{kind, "host-local", "portmap"} {
					s.InstallPlugin(b, prefix+name, r.programs.installed(b, i.program(b, r.programs, name)))
				}
			}
			subjects = append(subjects, &other)
		}
		var valid []types.GCAttachment
		for _, count := range r.profile.many {
			if kind == "bridge" && count > perBridge {
				continue
			}
			for _, pod := range r.attach(b, s, len(valid), count) {
				valid = append(valid, types.GCAttachment{ContainerID: pod.ID, IfName: "eth0"})
			}
			for _, s := range subjects {
				s.varied = strconv.Itoa(count)
			}
			// The reference's own network has as many leases: in the same one each would find what the other has changed, and read all.
			s.MustRun(b, "sh", "-c", "cd /var/lib/cni/networks 2>/dev/null || exit 0; mkdir -p "+prefix+networkName+"; cp -a "+networkName+"/. "+prefix+networkName)
			r.measure(b, scenario, r.profile.fewRounds, subjects)
			s.MustRun(b, "rm", "-rf", "/var/lib/cni/networks/"+prefix+networkName)
			r.kernelAlone(b, scenario, s, kind)
			for _, s := range subjects {
				r.results.Add(s.point(scenario, "load"), "", load())
			}
			r.saveMany(b)
			r.wholeNode(b, s, kind, valid)
			r.saveMany(b)
		}
	}
}

// kernelAlone measures what the kernel needs for the links alone, asked by a process that is there already: how that grows is no plugin's doing.
// DEL is until the link is gone, as with cnibox, and not until its memory is free.
func (r *runner) kernelAlone(b *testing.B, scenario string, s *subject, kind string) {
	b.Helper()
	taken := samples{}
	for round, pod := range r.makePods(b, s.Host, r.profile.fewRounds+1) {
		var adding, deleting cost
		var err error
		s.Do(func() { adding, deleting, err = linkAlone(pod, kind) })
		if err != nil {
			b.Fatal(err)
		}
		if round > 0 { // the first may make the bridge
			for verb, c := range map[string]cost{"ADD": adding, "DEL": deleting} {
				taken.add(verb, milliseconds(c.wall))
				taken.add(verb+" CPU", milliseconds(c.cpu))
			}
		}
	}
	alone := *s
	alone.name = report.Kernel
	for metric, values := range taken {
		r.results.Add(alone.point(scenario, metric), "ms", values...)
	}
}

func linkAlone(pod *netlab.Pod, kind string) (adding, deleting cost, err error) {
	file, err := os.Open(pod.Path())
	if err != nil {
		return adding, deleting, err
	}
	defer file.Close()
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return adding, deleting, err
	}
	defer host.Close()
	inside, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return adding, deleting, err
	}
	defer inside.Close()

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = "alone0", 1, 1
	var made netlink.Link = &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(file.Fd())), PeerHardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
	switch kind {
	case "macvlan":
		lan, err := host.LinkByName("lan0")
		if err != nil {
			return adding, deleting, err
		}
		attrs.Name, attrs.ParentIndex, attrs.Namespace = "eth0", lan.Attrs().Index, netlink.NsFd(int(file.Fd()))
		made = &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
	case "bridge":
		bridge, err := host.LinkByName("cni0")
		if err != nil {
			return adding, deleting, err
		}
		made.Attrs().MasterIndex = bridge.Attrs().Index
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 88, 255, 250), Mask: net.CIDRMask(16, 32)}}
	begun, before := time.Now(), threadCPU()
	if err := host.LinkAdd(made); err != nil {
		return adding, deleting, fmt.Errorf("make a link: %w", err)
	}
	end, err := inside.LinkByName("eth0")
	if err != nil {
		return adding, deleting, err
	}
	if kind != "macvlan" {
		if err := host.LinkSetUp(made); err != nil {
			return adding, deleting, err
		}
	}
	if err := inside.AddrAdd(end, address); err != nil {
		return adding, deleting, err
	}
	if err := inside.LinkSetUp(end); err != nil {
		return adding, deleting, err
	}
	adding = cost{time.Since(begun), threadCPU() - before}
	begun = time.Now()
	gone := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // whose time it is
		defer runtime.UnlockOSThread()
		before := threadCPU()
		err := inside.LinkDel(end) // waits for the kernel to free memory
		deleting.cpu = threadCPU() - before
		gone <- err
	}()
	asking, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return adding, deleting, err
	}
	defer asking.Close()
	for err == nil {
		_, err = asking.LinkByName("eth0")
	}
	deleting.wall = time.Since(begun)
	err = <-gone
	return adding, deleting, err
}

// wholeNode measures what asks about all attachments of a node, and puts them right.
func (r *runner) wholeNode(b *testing.B, s *subject, kind string, valid []types.GCAttachment) {
	b.Helper()
	taken := samples{}
	conflist := strings.Replace(string(s.list.Bytes), cniVersion, "1.1.0", 1) // older ones have no STATUS and no GC
	for range r.profile.looks {
		begun := time.Now()
		if err := s.StatusList(conflist); err != nil {
			b.Fatal("STATUS: ", err)
		}
		taken.add("STATUS", milliseconds(time.Since(begun)))
		begun = time.Now()
		if err := s.GCList(conflist, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
			b.Fatal("GC: ", err)
		}
		taken.add("GC", milliseconds(time.Since(begun)))
	}
	const long = 5 * time.Second // what takes so long is not repeated
	for _, command := range []string{"show", "doctor"} {
		for used, n := (usage{}), 0; n < r.profile.looks && used.wall < long; n++ {
			used = r.cnictl(b, s, command)
			taken.add(command, milliseconds(used.wall))
			taken.add(command+" CPU", milliseconds(used.cpu))
			taken.add(command+" RSS", used.peak)
		}
	}
	var look *nft.Conn // stays in the host's namespace
	var err error
	s.Do(func() { look, err = nft.Open() })
	if err != nil {
		b.Fatal(err)
	}
	defer look.Close()
	rules := len(valid)
	if kind == "macvlan" {
		rules = 0 // it needs none: repair looks, and finds nothing
	}
	isBack := func() bool { return hurts[0].holds(look) >= rules }
	for used, n := (usage{}), 0; n < r.profile.looks && used.wall < long; n++ {
		s.MustRun(b, "nft", "flush", "ruleset")
		used = r.cnictl(b, s, "repair")
		taken.add("repair", milliseconds(used.wall))
		taken.add("repair CPU", milliseconds(used.cpu))
		if !isBack() {
			b.Fatalf("repair has put back %d of %d", hurts[0].holds(look), rules)
		}
	}
	r.agentAtRest(b, s, taken, rules, isBack)
	for metric, values := range taken {
		r.results.Add(report.Point{Scenario: report.WholeNode, Case: s.varied, Plugins: kind, Metric: metric}, "", values...)
	}
}

// agentAtRest measures an agent that has nothing to do, and then how long after a flush all rules are back.
func (r *runner) agentAtRest(b *testing.B, s *subject, taken samples, rules int, isBack func() bool) {
	b.Helper()
	n := &agentNode{subject: s}
	n.startAgent(b)
	defer n.stopAgent(b)
	n.awaitIdle()
	before, begun := n.agentCPU(), time.Now()
	netlab.Pause(r.profile.rest)
	taken.add("agent CPU", 100*float64(n.agentCPU()-before)/float64(time.Since(begun)))
	taken.add("agent RSS", n.agentMemory("VmRSS"))
	if rules > 0 {
		s.MustRun(b, "nft", "flush", "ruleset")
		before, begun = n.agentCPU(), time.Now()
		for !isBack() && time.Since(begun) < time.Minute {
			netlab.Pause(20 * time.Millisecond)
		}
		taken.add("mended", milliseconds(time.Since(begun)))
		taken.add("mended CPU", milliseconds(n.agentCPU()-before))
		n.awaitIdle()
	}
	taken.add("agent peak", n.agentMemory("VmHWM"))
}

// agentMemory returns a line of the agent's status, in bytes.
func (n *agentNode) agentMemory(line string) float64 {
	kilobytes, _ := strconv.ParseFloat(found(fmt.Sprintf("/proc/%d/status", n.agent.Process.Pid), `(?m)^`+line+`:\s+(\d+) kB`), 64)
	return kilobytes * 1024
}

// cnictl runs a command of cnictl, whatever it finds.
func (r *runner) cnictl(b *testing.B, s *subject, command string) (used usage) {
	b.Helper()
	var err error
	before := childrenCPU()
	s.Do(func() {
		used, err = r.programs.launch(s.Command("/bin/sh", "-c", `"$0" "$1" >/dev/null 2>&1 || true`, netlab.Cnictl(b), command))
	})
	if err != nil {
		b.Fatal(err)
	}
	used.cpu = childrenCPU() - before
	return used
}

// load is the machine's load of the last minute.
func load() float64 {
	value, _ := strconv.ParseFloat(found("/proc/loadavg", `^(\S+)`), 64)
	return value
}

// once measures a runtime that starts all pods of a node at once, and stops them: on an empty node, and on one that has just been rebooted,
// whose pods of before have left their leases and results.
func (r *runner) once(b *testing.B, scenario string) {
	subjects := r.newSubjects(b, contenders, usual(hostLocal), "")
	if path, err := exec.LookPath(*netavarkPath); err == nil && slices.Contains(strings.Split(*chosen, ","), report.Netavark) {
		subjects = append(subjects, &subject{Host: netlab.NewHost(b), implementation: implementation{name: report.Netavark, operates: netavark(path)}, ports: 1, port: measuredPort})
	}
	for _, s := range subjects {
		s.varied = "an empty node"
		if err := s.batch(r.makePods(b, s.Host, 1), 1, samples{}); err != nil {
			b.Fatal(err)
		}
		empty, rebooted := samples{}, samples{}
		for range r.profile.bursts {
			pods, later := r.makePods(b, s.Host, r.profile.burst), r.makePods(b, s.Host, r.profile.burst)
			if err := s.batch(pods, len(pods), empty); err != nil {
				b.Fatal(err)
			}
			s.reboot(b, pods)
			if err := s.batch(later, len(later), rebooted); err != nil {
				b.Fatal(err)
			}
			if s.operates == nil { // netavark keeps nothing over a reboot, and fails
				s.all(b, "DEL", pods)
			}
		}
		r.recordBatch(s, scenario, empty)
		s.varied = "after a reboot"
		r.recordBatch(s, scenario, rebooted)
		r.saveMany(b)
	}
}

// reboot attaches pods, and takes away what a reboot does.
func (s *subject) reboot(b *testing.B, pods []*netlab.Pod) {
	b.Helper()
	s.all(b, "ADD", pods)
	var ends []func()
	for _, pod := range pods {
		ends = append(ends, pod.BeginDelete(b))
	}
	for _, wait := range ends {
		wait()
	}
	s.MustRun(b, "sh", "-c", "ip link delete cni0; nft flush ruleset; find /run -mindepth 1 -maxdepth 1 -not -name netns -exec rm -rf {} +")
}

// all makes a call for each pod, which does not count.
func (s *subject) all(b *testing.B, verb string, pods []*netlab.Pod) {
	b.Helper()
	workers := runtime.NumCPU()
	if s.operates != nil {
		workers = 1 // netavark fails now and then when it is called twice at once
	}
	errs := s.parallel(len(pods), workers, func(i int) error {
		_, err := s.operate((*exec.Cmd).Run, verb, s.conf(pods[i], measuredPort+i*s.ports))
		return err
	})
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	if err := reapOrphans(); err != nil {
		b.Fatal(err)
	}
}

func (r *runner) recordBatch(s *subject, scenario string, taken samples) {
	for _, verb := range batchVerbs {
		for metric, unit := range map[string]string{"": "ms", " wall": "ms", " CPU": "ms", " caller": "ms", " idle": "%", " waits": ""} {
			r.results.Add(s.point(scenario, verb+metric), unit, taken[verb+metric]...)
		}
		r.results.Add(s.point(scenario, verb+" p99"), "ms", quantile(taken[verb], 0.99))
		r.results.Add(s.point(scenario, verb+" failed"), "calls", sum(taken[verb+" failed"]))
	}
	r.results.Add(s.point(scenario, "load"), "", load())
}
