package operator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// lan is a network without a host end, whose attachments nothing on the host shows.
const lan = `{"cniVersion": "1.1.0", "name": "lan", "plugins": [{"type": "macvlan", "master": "uplink0",
	"ipam": {"type": "host-local", "ranges": [[{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100"}]]}}]}`

// thirdMissing is a network whose third plugin is missing.
const thirdMissing = `{"cniVersion": "1.1.0", "name": "broken", "plugins": [
	{"type": "bridge", "bridge": "broken0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/24"}]]}},
	{"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}}, {"type": "missing"}]}`

// presences is a node on which attachments are in all situations that make it hard to tell whether they live.
type presences struct {
	*operator
}

func newPresences(t *testing.T) *presences {
	t.Helper()
	p := &presences{newOperator(t)}
	for file, text := range map[string]string{"20-lan": lan, "30-broken": thirdMissing} {
		p.host.Feed(t, text, "sh", "-c", "cat >/etc/cni/net.d/"+file+".conflist")
	}
	return p
}

func (p *presences) shell(script string) string {
	p.Helper()
	return p.host.MustRun(p, "sh", "-ec", script)
}

// add attaches what is at a path, and returns the path.
func (p *presences) add(network, name, path string) string {
	p.Helper()
	p.must("add", network, path, "--id", name)
	return path
}

func (p *presences) pod(network, name string) *netlab.Pod {
	p.Helper()
	pod := p.host.NewPod(p, name)
	p.add(network, name, pod.Path())
	return pod
}

// fail begins an attachment that a third plugin ends, as a runtime does whose DEL fails then, too.
func (p *presences) fail(name string) *netlab.Pod {
	p.Helper()
	pod := p.host.NewPod(p, name)
	if code, printed := p.cnictl("add", "broken", pod.Path(), "--id", name); code == 0 || !strings.Contains(printed, "missing") {
		p.Fatal(printed)
	}
	return pod
}

// linked attaches a pod by a link that can be made to lead elsewhere, as /proc/PID/ns/net does when the process has ended.
func (p *presences) linked(network, name string) *netlab.Pod {
	p.Helper()
	pod := p.host.NewPod(p, name)
	p.shell("mkdir -p /run/by && ln -s " + pod.Path() + " /run/by/" + name)
	p.add(network, name, "/run/by/"+name)
	return pod
}

// lead has a link lead elsewhere.
func (p *presences) lead(name, to string) {
	p.Helper()
	p.shell("ln -sfn " + to + " /run/by/" + name)
}

// process is a namespace whose path is that of a process.
func (p *presences) process() (path string, end func()) {
	p.Helper()
	cmd := p.host.Command("unshare", "--net", "sleep", "1000")
	if err := p.host.Start(cmd); err != nil {
		p.Fatal(err)
	}
	end = func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
	p.Cleanup(end)
	path = fmt.Sprintf("/proc/%d/ns/net", p.host.PID(p, cmd))
	p.shell("until test $(readlink " + path + ") != $(readlink /proc/self/ns/net); do sleep 0.01; done")
	return path, end
}

// loses takes the path of a pod away, which goes on to live by something else.
func (p *presences) loses(pod *netlab.Pod) { p.Helper(); pod.BeginDelete(p) }

// keep has a process live in a pod.
func (p *presences) keep(pod *netlab.Pod) {
	p.Helper()
	pod.Background(p, pod.Command("sleep", "1000"))
}

// bindElsewhere mounts a pod's namespace in a mount namespace of its own.
func (p *presences) bindElsewhere(pod *netlab.Pod) {
	p.Helper()
	p.host.Background(p, p.host.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec",
		"touch /run/bound && mount --bind "+pod.Path()+" /run/bound && touch /run/is-bound && exec sleep 1000"))
	p.shell("until test -e /run/is-bound; do sleep 0.01; done")
}

// outliveFirstThread attaches a process whose first thread ends then, while another one runs on.
func (p *presences) outliveFirstThread(network, name string) {
	p.Helper()
	cmd := p.host.Command("unshare", "--net", "python3", "-c", `import ctypes, os, threading, time
threading.Thread(target=lambda: time.sleep(1000)).start()
open("/run/has-threads", "w").close()
while not os.path.exists("/run/is-attached"): time.sleep(0.01)
ctypes.CDLL(None).pthread_exit(None)`)
	p.host.Background(p, cmd)
	p.shell("until test -e /run/has-threads; do sleep 0.01; done")
	path := fmt.Sprintf("/proc/%d/ns/net", p.host.PID(p, cmd))
	p.add(network, name, path)
	p.shell("touch /run/is-attached; while readlink " + path + " >/dev/null; do sleep 0.01; done")
}

// bindUnseen mounts a pod's namespace in a mount namespace of which one process sees nothing of it, and another one all.
func (p *presences) bindUnseen(pod *netlab.Pod) {
	p.Helper()
	p.host.Background(p, p.host.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec",
		"touch /run/unseen && mount --bind "+pod.Path()+` /run/unseen && mkdir /run/empty && python3 -c 'import os, time; os.chroot("/usr/share"); time.sleep(1000)' &
		until test $(grep -c . /proc/$!/mountinfo) -lt $(grep -c . /proc/$$/mountinfo); do sleep 0.01; done
		touch /run/is-unseen && exec sleep 1000`))
	p.shell("until test -e /run/is-unseen; do sleep 0.01; done")
}

// note runs a script on the note of a container's namespace.
func (p *presences) note(name, script string) {
	p.Helper()
	p.shell(fmt.Sprintf(`f=$(grep -l '"containerID":"%s"' /var/lib/cni/cnibox/*); %s`, name, script))
}

func result(network, name string) string { return resultsDir + "/" + network + "-" + name + "-eth0" }

// situation is one attachment's. The network is demo, with a host end, unless it is named.
type situation struct {
	name    string
	network string
	makes   func(p *presences, name string)
	after   func(p *presences, name string) // when attachments have been made some minutes old
	want    string                          // alive, gone, replaced or unknown
	isYoung bool                            // gone, and not collected yet
}

var situations = []situation{
	{name: "runs", makes: func(p *presences, name string) { p.pod("demo", name) }, want: "alive"},
	{name: "runs-without-host-end", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name) }, want: "alive"},
	{name: "ended", makes: func(p *presences, name string) { p.pod("demo", name).Delete(p) }, want: "gone"},
	{name: "ended-without-host-end", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name).Delete(p) }, want: "gone"},
	{name: "process-runs", network: "lan", makes: func(p *presences, name string) { path, _ := p.process(); p.add("lan", name, path) }, want: "alive"},
	{name: "process-ended", makes: func(p *presences, name string) { path, end := p.process(); p.add("demo", name, path); end() }, want: "gone"},
	{name: "pid-is-a-process-of-the-host", makes: func(p *presences, name string) {
		pod := p.linked("demo", name)
		pod.Delete(p)
		p.lead(name, "/proc/self/ns/net")
	}, want: "gone"},
	{name: "pid-is-a-process-of-the-host-without-host-end", network: "lan", makes: func(p *presences, name string) {
		pod := p.linked("lan", name)
		pod.Delete(p)
		p.lead(name, "/proc/self/ns/net")
	}, want: "gone"},
	{name: "path-is-another-containers", makes: func(p *presences, name string) {
		pod := p.linked("demo", name)
		pod.Delete(p)
		p.lead(name, p.pod("demo", "another").Path())
	}, want: "replaced"},
	{name: "namespace-made-anew", makes: func(p *presences, name string) { p.pod("demo", name).Replace(p) }, want: "replaced"},
	{name: "namespace-made-anew-without-host-end", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name).Replace(p) }, want: "replaced"},
	{name: "mount-lost-process-runs", makes: func(p *presences, name string) { pod := p.pod("demo", name); p.keep(pod); p.loses(pod) }, want: "alive"},
	{name: "mount-lost-process-runs-without-host-end", network: "lan", makes: func(p *presences, name string) { pod := p.pod("lan", name); p.keep(pod); p.loses(pod) }, want: "alive"},
	{name: "bound-in-another-mount-namespace", network: "lan", makes: func(p *presences, name string) { pod := p.pod("lan", name); p.bindElsewhere(pod); p.loses(pod) }, want: "alive"},
	{name: "bound-where-not-all-see-it", network: "lan", makes: func(p *presences, name string) { pod := p.pod("lan", name); p.bindUnseen(pod); p.loses(pod) }, want: "alive"},
	{name: "first-thread-ended", network: "lan", makes: func(p *presences, name string) { p.outliveFirstThread("lan", name) }, want: "alive"},
	{name: "of-the-boot-before", makes: func(p *presences, name string) {
		p.pod("demo", name).Replace(p)
		p.note(name, `sed -i 's/"boot":"[^"]*"/"boot":"other"/' $f`)
	}, want: "gone"},
	{name: "clock-was-set-back", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name) }, after: func(p *presences, name string) {
		p.note(name, `touch -d "1 hour ago" $f `+result("lan", name)+" $(grep -l "+name+" /var/lib/cni/networks/lan/*)")
	}, want: "alive"},
	{name: "clock-was-set-back-ended", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name).Delete(p) }, after: func(p *presences, name string) {
		p.note(name, `touch -d "1 day" $f `+result("lan", name)+" $(grep -l "+name+" /var/lib/cni/networks/lan/*)")
	}, want: "gone"},
	{name: "result-missing", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name); p.shell("rm " + result("lan", name)) }, want: "alive"},
	{name: "result-missing-ended", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name).Delete(p); p.shell("rm " + result("lan", name)) }, want: "gone"},
	{name: "result-torn", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name); p.shell("truncate -s 100 " + result("lan", name)) }, want: "alive"},
	{name: "result-torn-ended", network: "lan", makes: func(p *presences, name string) {
		p.pod("lan", name).Delete(p)
		p.shell("truncate -s 100 " + result("lan", name))
	}, want: "gone"},
	{name: "without-a-note", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name); p.note(name, "rm $f") }, want: "alive"},
	{name: "without-a-note-ended", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name).Delete(p); p.note(name, "rm $f") }, want: "gone"},
	{name: "without-a-note-mount-lost", network: "lan", makes: func(p *presences, name string) {
		pod := p.pod("lan", name)
		p.keep(pod)
		p.loses(pod)
		p.note(name, "rm $f")
	}, want: "unknown"},
	{name: "without-a-note-made-anew", network: "lan", makes: func(p *presences, name string) { p.pod("lan", name).Replace(p); p.note(name, "rm $f") }, want: "unknown"},
	{name: "without-a-note-and-a-result", network: "lan", makes: func(p *presences, name string) {
		p.pod("lan", name).Delete(p)
		p.note(name, "rm $f "+result("lan", name))
	}, want: "unknown"},
	{name: "start-failed", network: "broken", makes: func(p *presences, name string) { p.fail(name) }, want: "alive"},
	{name: "start-failed-ended", network: "broken", makes: func(p *presences, name string) { p.fail(name).Delete(p) }, want: "gone"},
	{name: "start-failed-ended-just-now", network: "broken", after: func(p *presences, name string) { p.fail(name).Delete(p) }, want: "gone", isYoung: true},
	{name: "made-again-under-its-id", makes: func(p *presences, name string) {
		p.pod("demo", name).Delete(p)
		p.add("demo", name, p.host.NewPod(p, "again").Path())
	}, want: "alive"},
}

func (s situation) isOver() bool { return s.want == "gone" || s.want == "replaced" }

// TestAllSayTheSame: show, gc, release, repair, doctor and the agent have one judge of whether an attachment lives, in each situation.
func TestAllSayTheSame(t *testing.T) {
	t.Parallel()
	p := newPresences(t)
	for i := range situations {
		s := &situations[i]
		if s.network == "" {
			s.network = "demo"
		}
		if s.makes != nil {
			s.makes(p, s.name)
		}
	}
	p.age()
	for _, s := range situations {
		if s.after != nil {
			s.after(p, s.name)
		}
	}
	addresses := p.compare(situations)

	// While a runtime does not answer, what it may run counts as running.
	p.shell("mkdir -p /run/containerd && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/containerd/containerd.sock\")'")
	silent := slices.Clone(situations)
	for i := range silent {
		if silent[i].isOver() {
			silent[i].want, silent[i].isYoung = "unknown", false
		}
	}
	p.compare(silent)

	agent := p.host.Command("sh", "-c", "exec "+netlab.Cnictl(t)+" agent --grace 0s --every 1s 2>/run/agent.log")
	p.host.Background(t, agent)
	p.await("the agent to say that a runtime does not answer", func() bool {
		return strings.Contains(p.shell("cat /run/agent.log || true"), "a runtime does not answer: what it may run counts as running")
	})
	left := func(s situation) bool {
		_, err := p.host.Output(p.host.Command("test", "-e", "/var/lib/cni/networks/"+s.network+"/"+addresses[s.name]))
		return err == nil
	}
	for _, s := range situations {
		if !left(s) {
			t.Errorf("%s was collected while a runtime did not answer", s.name)
		}
	}
	p.shell("rm /run/containerd/containerd.sock")
	for _, s := range situations {
		if s.isOver() && !s.isYoung {
			p.await(s.name+" to be collected by the agent", func() bool { return !left(s) })
		}
	}
	for _, s := range situations {
		if !s.isOver() && !left(s) {
			t.Errorf("%s was collected, and is %s", s.name, s.want)
		}
	}
}

// compare asks all commands about all situations, and returns the attachments' addresses.
func (p *presences) compare(all []situation) (addresses map[string]string) {
	p.Helper()
	addresses = map[string]string{}
	type attachment struct {
		Owner, ContainerID, State, Why, Outcome string
		Addresses                               []string
	}
	parse := func(to any, args ...string) {
		_, printed := p.cnictl(args...)
		at := strings.Index(printed, "{")
		if at < 0 || json.NewDecoder(strings.NewReader(printed[at:])).Decode(to) != nil {
			p.Fatalf("%q: %s", args, printed)
		}
	}
	var shown, repaired struct{ Attachments []attachment }
	var collected struct{ Goes, Stays []attachment }
	var found struct {
		Findings []struct{ Code, Summary string }
	}
	for _, s := range all {
		p.renew(s)
	}
	parse(&shown, "show", "--json")
	parse(&collected, "gc", "--json")
	parse(&repaired, "repair", "--dry-run", "--json")
	parse(&found, "doctor", "--json")
	says := map[string]map[string]string{}
	why := map[string]string{}
	say := func(name, who, what string) {
		if says[name] == nil {
			says[name] = map[string]string{}
		}
		says[name][who] = what
	}
	for _, a := range shown.Attachments {
		say(a.ContainerID, "show", a.State)
		why[a.ContainerID] = a.Why
		if len(a.Addresses) > 0 {
			addresses[a.ContainerID], _, _ = strings.Cut(a.Addresses[0], "/")
		}
	}
	for _, a := range collected.Goes {
		say(a.ContainerID, "gc", "goes")
	}
	for _, a := range collected.Stays {
		say(a.ContainerID, "gc", a.State)
	}
	for _, a := range repaired.Attachments {
		say(a.ContainerID, "repair", a.Outcome)
	}
	over := map[string]int{}
	for _, s := range all {
		p.renew(s)
		code, printed := p.cnictl("release", addresses[s.name], "--dry-run", "--network", s.network)
		release := "refused"
		if code == 0 && strings.Contains(printed, "would be released") {
			release = "released"
		} else if strings.Contains(printed, "that is in use") {
			release = "alive"
		}
		goes := s.isOver() && !s.isYoung
		if goes {
			over[s.network]++
		}
		has := says[s.name]
		isRight := has["show"] == s.want && (has["repair"] == "gone") == s.isOver() && (release == "released") == goes && (release == "alive") == (s.want == "alive")
		if goes {
			isRight = isRight && has["gc"] == "goes"
		} else {
			isRight = isRight && has["gc"] == s.want
		}
		p.Logf("%-50s %-8s | show %-8s gc %-8s repair %-8s release %-8s | %s", s.name, s.want, has["show"], has["gc"], has["repair"], release, why[s.name])
		if !isRight {
			p.Errorf("%s is %s", s.name, s.want)
		}
	}
	for network, count := range over {
		isSaid := slices.ContainsFunc(found.Findings, func(f struct{ Code, Summary string }) bool {
			return f.Code == "leftovers" && strings.Contains(f.Summary, fmt.Sprintf("gc would free %d thing", count)) && strings.HasSuffix(f.Summary, " "+network)
		})
		if !isSaid {
			p.Errorf("doctor does not say that gc would free %d things of network %s: %+v\ngc: %+v", count, network, found.Findings, collected)
		}
	}
	return addresses
}

// renew has what is young stay so, however long the commands take: its lease is of the near future.
func (p *presences) renew(s situation) {
	p.Helper()
	if s.isYoung {
		p.shell(`touch -d "50 seconds" $(grep -l "^` + s.name + `" /var/lib/cni/networks/*/*)`)
	}
}

// await waits until something is so.
func (p *presences) await(what string, isSo func() bool) {
	p.Helper()
	netlab.Eventually(p, func() error {
		if isSo() {
			return nil
		}
		return fmt.Errorf("waited for %s\n%s", what, p.shell("cat /run/agent.log || true"))
	})
}
