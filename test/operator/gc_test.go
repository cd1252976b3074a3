package operator

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

const resultsDir = netlab.CacheDir + "/results"

// fleet is a node with pods of the network demo, all of them attached for some minutes: one and two run, dead and lost are gone without
// a DEL.
type fleet struct {
	*operator
	addresses map[string]string // by pod
}

// anew makes the fleet what it was at first, as far as something was removed or broken.
func (f *fleet) anew() {
	f.Helper()
	f.shell("cd /var/lib/cni; rm -rf results multus /run/other /run/loop; if [ -e /run/saved ]; then cp -a /run/saved results; fi")
	for _, name := range []string{"one", "two", "dead", "lost"} {
		if f.addresses[name] != "" && f.missing(name, false) == nil {
			continue
		}
		pod, address := f.attach(name)
		f.addresses[name] = address
		if name == "dead" || name == "lost" {
			pod.Delete(f)
		}
	}
	f.age()
	f.shell("rm -rf /run/saved /var/lib/cni/cnibox; cp -a " + resultsDir + " /run/saved")
}

const ageResults = `for f in ` + resultsDir + `/*; do [ ! -e $f ] || touch -d "4 minutes ago" $f; done`

// age makes attachments some minutes old.
func (o *operator) age() {
	o.Helper()
	o.host.MustRun(o, "sh", "-ec", `for f in /var/lib/cni/networks/*/*; do [ ! -e $f ] || touch -d "5 minutes ago" $f; done; `+ageResults)
}

func (f *fleet) shell(script string) {
	f.Helper()
	f.host.MustRun(f, "sh", "-ec", script)
}

// missing says what a pod does not have: its lease, its elements in nftables, and, of one that runs, its answer to a ping.
func (f *fleet) missing(name string, runs bool) (parts []string) {
	f.Helper()
	if !strings.Contains(f.leases(), "/"+f.addresses[name]+"\n") {
		parts = append(parts, "lease")
	}
	if !strings.Contains(f.host.MustRun(f, "nft", "list", "ruleset"), "demo/"+name+"/eth0") {
		parts = append(parts, "nft")
	}
	if runs && f.host.Ping(f.addresses[name], netlab.Patience) != nil {
		parts = append(parts, "ping")
	}
	return parts
}

// TestGCTrustsNoCache breaks libcni's cache in every way, and has cnictl collect where nothing else says what is gone, as with plugins that
// note no namespaces. Nothing that runs loses anything. What is gone is removed where the cache says so; where it does not it stays, and it is
// said what to do.
func TestGCTrustsNoCache(t *testing.T) {
	t.Parallel()
	whole := &fleet{newOperator(t), map[string]string{}}
	const all, none = "dead lost", ""
	each := func(do string) string { return "cd " + resultsDir + "; for f in *; do " + do + "; done; " }
	unknown := []string{"libcni has no result of its last ADD", "if it is gone: `cnictl del demo --id lost --ifname eth0`", "--cache-dir"}
	for _, kind := range []struct {
		name   string
		breaks string   // a shell script
		args   []string // of gc
		says   []string // about what stays
		stops  bool     // gc fails, since it is not known what is held
		goes   string   // what is removed
	}{
		{name: "whole", breaks: ":", goes: all},
		{name: "whole, and one that is gone is named", breaks: ":", args: []string{"--valid", "dead/eth0"}, goes: "lost"},
		{name: "empty directory", breaks: "rm " + resultsDir + "/*", says: unknown},
		{name: "no directory", breaks: "rm -r " + resultsDir, says: unknown},
		{name: "a file in place of the directory", breaks: "rm -r " + resultsDir + "; touch " + resultsDir, says: []string{resultsDir}, stops: true},
		{name: "torn files", breaks: each(`truncate -s 100 $f`), says: unknown},
		{name: "empty files", breaks: each(`truncate -s 0 $f`), says: unknown},
		{name: "null", breaks: each(`echo null >$f`), says: unknown},
		{name: "an empty object", breaks: each(`echo {} >$f`), says: unknown},
		{name: "zeros", breaks: each(`head -c 900 /dev/zero >$f`), says: unknown},
		{name: "bare results, of an old libcni", breaks: each(`echo '{"cniVersion":"0.4.0","ips":[]}' >$f`), says: unknown},
		{name: "results of another version", breaks: each(`sed -i 's/"result":{"cniVersion":"1.1.0"/"result":{"cniVersion":"9.9.9"/' $f`) + ageResults, goes: all},
		{name: "no result in the files", breaks: each(`sed -i 's/,"result":.*/,"result":null}/' $f`) + ageResults, goes: all},
		{name: "no namespace in the files", breaks: each(`sed -i 's/"netns":"[^"]*",//' $f`), goes: none},
		{name: "files renamed", breaks: each(`mv $f $f.saved`), says: unknown},
		{name: "files exchanged", breaks: "cd " + resultsDir + "; mv demo-one-eth0 x; mv demo-dead-eth0 demo-one-eth0; mv x demo-dead-eth0",
			says: []string{"--id dead --ifname eth0"}, goes: "lost"},
		{name: "directories in place of files", breaks: each(`rm $f; mkdir $f`), says: unknown},
		{name: "pipes in place of files", breaks: each(`rm $f; mkfifo $f`), says: unknown},
		{name: "files that can't be read", breaks: each(`rm $f; ln -s $f $f`), says: unknown},
		{name: "files of 4 GiB", breaks: each(`truncate -s 4G $f`), says: unknown},
		{name: "multus' directory", breaks: "mkdir /var/lib/cni/multus; mv " + resultsDir + " /var/lib/cni/multus; echo '[]' >/var/lib/cni/multus/one", goes: all},
		{name: "multus' directory has those that run", breaks: "mkdir -p /var/lib/cni/multus/results; mv " + resultsDir + "/*-one-* " + resultsDir + "/*-two-* /var/lib/cni/multus/results", goes: all},
		{name: "a directory of another runtime", breaks: "mkdir /run/other; mv " + resultsDir + " /run/other", says: unknown},
		{name: "a directory of another runtime, named", breaks: "mkdir /run/other; mv " + resultsDir + " /run/other", args: []string{"--cache-dir", "/run/other"}, goes: all},
		{name: "a directory of another runtime has those that run", breaks: "mkdir -p /run/other/results; mv " + resultsDir + "/*-one-* " + resultsDir + "/*-two-* /run/other/results",
			goes: all},
		{name: "another --cache-dir", breaks: ":", args: []string{"--cache-dir", "/run/other"}, goes: all},
		{name: "of another network only", breaks: each(`sed -i 's/"networkName":"demo"/"networkName":"other"/' $f; mv $f other-${f#demo-}`), says: unknown},
		{name: "half of the files torn", breaks: "cd " + resultsDir + "; truncate -s 100 demo-one-eth0 demo-lost-eth0", says: unknown, goes: "dead"},
		{name: "half of the files torn, what runs named", breaks: "cd " + resultsDir + "; truncate -s 100 demo-one-eth0 demo-two-eth0",
			args: []string{"--valid", "one/eth0", "--valid", "two/eth0"}, goes: all},
		{name: "of an earlier boot", breaks: each(`sed -i 's#"netns":"/run/netns/#"netns":"/run/netns/earlier-#; s#,"result":.*#,"result":null}#' $f; touch -d "2 days ago" $f`), goes: none},
		{name: "namespaces can't be seen from here", breaks: each(`sed -i 's#"netns":"/run/netns/#"netns":"/elsewhere/netns/#' $f`) + ageResults, goes: none},
		{name: "namespaces can't be looked at", breaks: "ln -s loop /run/loop; " + each(`sed -i 's#"netns":"/run/netns/#"netns":"/run/loop/#' $f`), goes: none},
		// The last one: it takes the aliases of links, too.
		{name: "a copy from before the containers were started anew", breaks: "for l in /sys/class/net/veth*; do ip link set dev ${l##*/} alias ''; done; " +
			each(`sed -i 's#"netns":"/run/netns/#"netns":"/run/netns/earlier-#' $f; touch -d "2 days ago" $f`), goes: none},
	} {
		whole.anew()
		t.Run(kind.name, func(t *testing.T) {
			f := &fleet{&operator{t, whole.host}, whole.addresses}
			f.shell(kind.breaks)
			code, printed := f.cnictl(append([]string{"gc", "demo", "--apply"}, kind.args...)...)
			var went []string
			for _, name := range []string{"dead", "lost"} {
				if f.missing(name, false) != nil {
					went = append(went, name)
				}
			}
			t.Logf("%s | exit code %d, %s | %s", kind.name, code, strings.SplitN(printed, "\n", 2)[0], strings.Join(went, " "))
			for _, name := range []string{"one", "two"} {
				if lost := f.missing(name, true); lost != nil {
					t.Errorf("%s runs, and lost %v", name, lost)
				}
			}
			if got := strings.Join(went, " "); got != kind.goes {
				t.Errorf("%q went, want %q", got, kind.goes)
			}
			if wrong := code != 0; wrong != kind.stops {
				t.Errorf("exit code %d", code)
			}
			for _, part := range kind.says {
				if !strings.Contains(printed, part) {
					t.Errorf("%q is missing", part)
				}
			}
			if count := strings.Contains(printed, fmt.Sprintf("%d removed, ", len(went))); kind.says == nil && !count {
				t.Error("it does not say how many were removed")
			}
			if t.Failed() {
				t.Log(printed)
			}
		})
	}
}

// TestGCOfLongNames: the alias of a host end has not all of a long key.
func TestGCOfLongNames(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	o := &operator{t, host}
	network, id := strings.Repeat("network", 15), strings.Repeat("id", 60)
	host.Feed(t, strings.Replace(demo, `"demo"`, `"`+network+`"`, 1), "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-demo.conflist")
	o.must("add", network, host.NewPod(t, "web").Path(), "--id", id)
	host.MustRun(t, "sh", "-c", "sed -i 's#/run/netns/#/elsewhere/#' "+resultsDir+"/*")
	if printed := o.must("gc", network, "--apply"); !strings.Contains(printed, "0 removed, 0 skipped, 0 failed; 1 in use") {
		t.Error(printed)
	}
	host.MustRun(t, "rm", "-r", resultsDir)
	host.MustRun(t, "sh", "-c", `touch -d "5 minutes ago" /var/lib/cni/networks/*/*`)
	if printed := o.must("gc", network); !strings.Contains(printed, "nothing to remove; 1 in use") {
		t.Error(printed)
	}
}

// TestGCBesideADDAndDEL collects while containers come and go. None of them loses anything, and gc finds nothing that it does not know.
func TestGCBesideADDAndDEL(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const callers, rounds = 4, 8
	var wait sync.WaitGroup
	for i := range callers {
		rt := o.host.NewPod(t, fmt.Sprintf("pod%d", i)).RuntimeConf(port(8000+i, 80, "tcp"))
		wait.Go(func() {
			for range rounds {
				if _, err := o.host.AddList(demo, rt); err != nil {
					t.Error(err)
				}
				if err := o.host.CheckList(demo, rt); err != nil {
					t.Error(err)
				}
				if err := o.host.DelList(demo, rt); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	for runs := 0; ; runs++ {
		select {
		case <-done:
			if runs < 3 {
				t.Errorf("gc ran %d times only", runs)
			}
			return
		default:
			if code, printed := o.cnictl("gc", "demo", "--apply"); code != 0 || !strings.Contains(printed, "0 removed, 0 skipped, 0 failed") {
				t.Errorf("exit code %d\n%s", code, printed)
			}
		}
	}
}

// TestGCExactly: of many attachments half are gone, here and there, and exactly these go.
func TestGCExactly(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const all, dead = 40, 20
	addresses, pods := map[string]string{}, []*netlab.Pod{}
	for i := range all {
		name := fmt.Sprintf("pod%02d", i)
		pod, address := o.attach(name)
		pods, addresses[name] = append(pods, pod), address
	}
	wait := []func(){}
	for i, pod := range pods {
		if i%2 == 1 {
			wait = append(wait, pod.BeginDelete(t))
		}
	}
	for _, ended := range wait {
		ended()
	}
	o.age()
	before := strings.Count(o.leases(), "\n")
	printed := o.must("gc")
	if !strings.Contains(printed, fmt.Sprintf("%d to remove, nothing is removed without --apply; %d in use", dead, all-dead)) || strings.Count(o.leases(), "\n") != before {
		t.Errorf("without --apply:\n%s", printed)
	}
	if printed := o.must("gc", "--apply"); !strings.Contains(printed, fmt.Sprintf("%d removed, 0 skipped, 0 failed; %d in use", dead, all-dead)) {
		t.Errorf("with --apply:\n%s", printed)
	}
	left, rules, results := o.leases(), o.host.MustRun(t, "nft", "list", "ruleset"), o.host.MustRun(t, "ls", resultsDir)
	for i, pod := range pods {
		name, lives := pod.Name(), i%2 == 0
		for what, has := range map[string]bool{
			"lease": strings.Contains(left, "/"+addresses[name]+"\n"), "rules": strings.Contains(rules, "demo/"+name+"/eth0"), "result": strings.Contains(results, "demo-"+name+"-eth0\n"),
		} {
			if has != lives {
				t.Errorf("%s lives: %v, and has its %s: %v", name, lives, what, has)
			}
		}
		if lives && o.host.Ping(addresses[name], netlab.Patience) != nil {
			t.Errorf("%s runs, and does not answer", name)
		}
	}
}

// TestGCSparesWhatLivesElsewhere: the path of a namespace is gone, and so is what the host has of the attachment. A process is still in it.
func TestGCSparesWhatLivesElsewhere(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.Feed(t, `{"cniVersion": "1.1.0", "name": "lan", "plugins": [{"type": "macvlan", "master": "uplink0",
		"ipam": {"type": "host-local", "ranges": [[{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100"}]]}}]}`, "sh", "-c", "cat >/etc/cni/net.d/20-lan.conflist")
	pod := o.host.NewPod(t, "web")
	o.must("add", "lan", pod.Path(), "--id", "web")
	sleeper := pod.Command("sleep", "1000")
	if err := pod.Start(sleeper); err != nil {
		t.Fatal(err)
	}
	pod.Delete(t)
	o.age()
	for _, hides := range []string{"address", "MAC address"} {
		if printed := o.must("gc", "--apply"); !strings.Contains(printed, "0 removed") || !strings.Contains(printed, "; 1 in use") {
			t.Errorf("before its %s is hidden:\n%s", hides, printed)
		}
		script := map[string]string{"address": "ip address flush dev eth0", "MAC address": "ip link set eth0 address 02:00:00:00:00:01"}[hides]
		o.host.MustRun(t, "nsenter", "-t", fmt.Sprint(o.host.PID(t, sleeper)), "-n", "sh", "-c", script)
	}
	_ = sleeper.Process.Kill()
	_ = sleeper.Wait()
	if printed := o.must("gc", "--apply"); !strings.Contains(printed, "1 removed") {
		t.Errorf("after its end:\n%s", printed)
	}
}

// TestGCAfterTheReferencePlugins removes what the DEL of the reference plugins leaves once the namespace is gone.
func TestGCAfterTheReferencePlugins(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"iptables", "nftables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			list := strings.NewReplacer(`"ipMasq": true`, `"ipMasq": true, "macspoofchk": true, "ipMasqBackend": "`+backend+`"`, `"type": "portmap"`, `"type": "portmap", "backend": "`+backend+`"`).Replace(demo)
			o.host.Feed(t, list, "sh", "-c", "cat >/etc/cni/net.d/10-demo.conflist")
			add := func(name string, port int) *netlab.Pod {
				pod := o.host.NewPod(t, name)
				o.must("add", "demo", pod.Path(), "--id", name, "--bin-dir", netlab.Reference(t), "-p", fmt.Sprintf("%d:80", port))
				return pod
			}
			add("live", 8000)
			before := o.host.Snapshot(t)
			add("gone", 8001).Delete(t)
			o.age()
			if printed := o.must("gc", "--apply", "--bin-dir", netlab.Reference(t)); !strings.Contains(printed, "1 removed, 0 skipped, 0 failed; 1 in use") {
				t.Error(printed)
			}
			if diff := before.Diff(o.host.Snapshot(t), "file /var/lib/cni/networks/", "file /run/xtables.lock", "file /run/cnibox/"); diff != "" {
				t.Errorf("left:\n%s", diff)
			}
			add("lost", 8002).Delete(t)
			o.host.MustRun(t, "sh", "-c", "rm "+resultsDir+"/demo-lost-eth0; grep -l lost /var/lib/cni/networks/demo/* | xargs rm")
			printed := o.must("gc", "--apply")
			if !strings.Contains(printed, map[string]string{"nftables": "it does not say whose it is", "iptables": "no cache has a result of its container"}[backend]) {
				t.Errorf("of rules of nobody who is known:\n%s", printed)
			}
			if rules := o.host.MustRun(t, "nft", "list", "ruleset"); strings.Count(rules, "lost") == 0 {
				t.Errorf("they are gone:\n%s", rules)
			}
		})
	}
}

// slow is an IPAM plugin whose ADD has its lease and waits.
const slow = `#!/bin/sh
if [ "$CNI_COMMAND" != ADD ]; then exec /opt/cni/bin/host-local; fi
result=$(/opt/cni/bin/host-local) || exit
echo begun >/run/begun
cat /run/go >/dev/null
echo "$result"
`

// TestGCBesideAnADD: an ADD is half done. It loses nothing, however long it takes, and is whole in the end.
func TestGCBesideAnADD(t *testing.T) {
	t.Parallel()
	for _, age := range []string{"young", "old"} {
		t.Run(age, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.host.Feed(t, strings.Replace(demo, `"type": "host-local"`, `"type": "slow"`, 1), "sh", "-c", "cat >/etc/cni/net.d/10-demo.conflist; mkfifo /run/begun /run/go")
			o.host.Feed(t, slow, "sh", "-c", "cat >/opt/cni/bin/slow; chmod +x /opt/cni/bin/slow")
			pod := o.host.NewPod(t, "web")
			add := o.host.Command(netlab.Cnictl(t), "add", "demo", pod.Path(), "--id", "web")
			if err := o.host.Start(add); err != nil {
				t.Fatal(err)
			}
			o.host.MustRun(t, "cat", "/run/begun")
			if age == "old" {
				o.host.MustRun(t, "sh", "-c", `touch -d "5 minutes ago" /var/lib/cni/networks/demo/*`)
			}
			for _, args := range [][]string{{"gc", "--apply"}, {"release", "10.88.0.2"}, {"purge", "--apply"}} {
				code, printed := o.cnictl(args...)
				if isGC := args[0] == "gc"; (code == 0) != isGC || isGC && !strings.Contains(printed, "0 removed, 0 skipped, 0 failed; 1 in use") {
					t.Errorf("%s: exit code %d\n%s", args, code, printed)
				}
			}
			o.host.MustRun(t, "sh", "-c", "echo go >/run/go")
			if err := add.Wait(); err != nil {
				t.Error(err)
			}
			o.must("check", "demo", pod.Path(), "--id", "web")
			if err := o.host.Ping("10.88.0.2", netlab.Patience); err != nil {
				t.Error(err)
			}
		})
	}
}
