package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// attachTwo attaches a pod that stays and one that goes, some minutes ago.
func attachTwo(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	live, gone := b.host.NewPod(t, "live"), b.host.NewPod(t, "gone")
	live.MustRun(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other") // which the fake plugin does not make
	b.must("add", "demo", live.Path(), "--id", "live")
	b.must("add", "demo", gone.Path(), "--id", "gone")
	gone.DeleteKeepFile(t)
	b.age()
	b.log()
	return b
}

// age makes what libcni has written some minutes old.
func (b *bench) age() {
	b.t.Helper()
	b.host.MustRun(b.t, "sh", "-c", `touch -d "4 minutes ago" /var/lib/cni/results/*`)
}

const delGone = "second DEL gone /run/netns/gone eth0, fake DEL gone /run/netns/gone eth0"

// calls returns how the plugins were called.
func (b *bench) calls() string { return strings.Join(b.log(), ", ") }

func TestGCReportsFirst(t *testing.T) {
	b := attachTwo(t)
	for _, args := range [][]string{{"gc"}, {"gc", "demo"}} {
		out := b.must(args...)
		assertContains(t, out.stdout, "would go", "gone/eth0", "its network namespace /run/netns/gone is gone", "1 to remove, nothing is removed without --apply; 1 in use")
		assertEqual(t, "calls", b.calls(), "")
	}
}

// DEL leaves other attachments alone; GC would take those of an ADD that began a moment ago.
func TestGCCallsDELOfWhatIsGoneAndNothingElse(t *testing.T) {
	b := attachTwo(t)
	assertContains(t, b.must("gc", "--apply").stdout, "removed", "gone/eth0", "1 removed, 0 skipped, 0 failed; 1 in use")
	assertEqual(t, "calls", b.calls(), delGone)
	assertContains(t, b.must("gc", "--apply").stdout, "0 removed")
	assertEqual(t, "calls", b.calls(), "")
}

func TestGCKeepsWhatIsNamed(t *testing.T) {
	for _, args := range [][]string{{"--valid", "gone/eth0", "--valid", "elsewhere/eth1"}, {"--valid-from", "list"}} {
		b := attachTwo(t)
		list := filepath.Join(t.TempDir(), "list")
		b.write(filepath.Dir(list), "list", "gone/eth0\nelsewhere/eth1\n")
		if args[1] == "list" {
			args[1] = list
		}
		out := b.must(append([]string{"gc", "demo", "--json", "--apply"}, args...)...)
		document := decode(t, out.stdout)
		assertEqual(t, "goes", len(document["goes"].([]any)), 0)
		assertEqual(t, "stays", len(document["stays"].([]any)), 2)
		assertContains(t, out.stdout, `"why": "it is named as valid"`)
		assertEqual(t, "calls", b.calls(), "")
	}
}

func TestGCGoesOnAfterAFailure(t *testing.T) {
	b := attachTwo(t)
	other := b.host.NewPod(t, "other")
	b.must("add", "demo", other.Path(), "--id", "other")
	other.Delete(t)
	b.age()
	b.log()
	b.failing("DEL")
	out := b.cnictl("gc", "--apply")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stdout, "0 removed, 0 skipped, 2 failed")
	assertContains(t, out.stderr, "remove gone/eth0 of network demo", "remove other/eth0 of network demo", "code:    11")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL, second DEL, fake DEL")
	out = b.cnictl("gc", "--apply", "--json")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stdout, `"outcome": "failed"`)
	decode(t, out.stdout) // one document
}

func TestGCEndsAfterTheOneThatItIsAt(t *testing.T) {
	b := attachTwo(t)
	other := b.host.NewPod(t, "other")
	b.must("add", "demo", other.Path(), "--id", "other")
	other.Delete(t)
	b.age()
	b.log()
	b.write(b.bin, "hook.DEL", "kill -TERM $PPID")
	out := b.cnictl("gc", "--apply")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stdout, "removed", "not tried", "1 removed, 0 skipped, 0 failed")
	assertContains(t, out.stderr, "told to end before all was tried")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL")
}

// GC is older than the verb.
func TestGCOfAnOldNetwork(t *testing.T) {
	b := attachTwo(t)
	b.write(b.conf, "10-demo.conflist", strings.Replace(demo, "1.1.0", "1.0.0", 1))
	b.must("gc", "demo", "--apply")
	assertEqual(t, "calls", b.calls(), delGone)
}

func TestGCDisabled(t *testing.T) {
	b := attachTwo(t)
	b.write(b.conf, "10-demo.conflist", strings.Replace(demo, `"name"`, `"disableGC": true, "name"`, 1))
	assertContains(t, b.must("gc", "demo", "--apply").stdout, "its network has disableGC", "0 removed")
	assertEqual(t, "calls", b.calls(), "")
}

// What ADD had counts: a plugin that has left the network since has something to remove.
func TestGCCallsThePluginsOfTheADD(t *testing.T) {
	b := attachTwo(t)
	b.write(b.conf, "10-demo.conflist", strings.Replace(demo, `, {"type": "second"}`, "", 1))
	b.must("gc", "--apply")
	assertEqual(t, "calls", b.calls(), delGone)

	b = attachTwo(t)
	if err := os.Remove(filepath.Join(b.conf, "10-demo.conflist")); err != nil {
		t.Fatal(err)
	}
	b.must("gc", "demo", "--apply")
	assertEqual(t, "calls without the network's file", b.calls(), delGone)

	b = attachTwo(t)
	b.host.MustRun(t, "sed", "-i", `s/"config":"[^"]*"/"config":"e30K"/`, "/var/lib/cni/results/demo-gone-eth0")
	b.age()
	b.must("gc", "--apply")
	assertEqual(t, "calls with a result without a configuration", b.calls(), delGone)

	b = attachTwo(t)
	b.host.MustRun(t, "sed", "-i", `s/"config":"[^"]*"/"config":"e30K"/`, "/var/lib/cni/results/demo-gone-eth0")
	b.age()
	b.write(b.conf, "10-demo.conflist", "{")
	out := b.cnictl("gc", "--apply")
	assertEqual(t, "exit code without any", out.code, exitFailed)
	assertContains(t, out.stderr, "there is no configuration of network demo", "write the network's file again")
}

// A DEL goes with the result that was looked at: one that is written meanwhile is neither read nor removed.
func TestGCBesideAnADDOfTheSameContainer(t *testing.T) {
	b := attachTwo(t)
	const file = "/var/lib/cni/results/demo-gone-eth0"
	b.write(b.bin, "hook.DEL", "sed -i 's#10.1.2.3#10.1.2.99#' "+file)
	assertContains(t, b.must("gc", "--apply").stdout, "1 removed")
	assertEqual(t, "calls", b.calls(), delGone)
	ips := b.stdin("DEL")["prevResult"].(map[string]any)["ips"].([]any)
	assertEqual[any](t, "address that DEL was told of", ips[0].(map[string]any)["address"], "10.1.2.3/24")
	assertContains(t, b.host.MustRun(t, "cat", file), "10.1.2.99")
}

// What is lent meanwhile to a container that is started again is not given back.
func TestGCBesideAnADDThatHasItsAddress(t *testing.T) {
	b := attachTwo(t)
	other := b.host.NewPod(t, "other")
	b.must("add", "demo", other.Path(), "--id", "other")
	other.Delete(t)
	b.lease("/var/lib/cni/networks/demo", "10.1.2.8", "other", "5 minutes ago")
	b.age()
	b.log()
	b.write(b.bin, "hook.DEL", `cd /var/lib/cni/networks/demo; printf 'other\r\neth0' >10.1.2.9`)
	assertContains(t, b.must("gc", "--apply").stdout, "1 removed, 1 skipped", "it has been lent 10.1.2.9 meanwhile: an ADD may be under way")
	assertEqual(t, "calls", b.calls(), delGone)
	assertEqual(t, "leases left", b.host.MustRun(t, "sh", "-c", "cd /var/lib/cni/networks/demo; echo 10*"), "10.1.2.8 10.1.2.9\n")
}

// One directory by two names.
func TestGCOfOneResultByTwoPaths(t *testing.T) {
	b := attachTwo(t)
	b.host.MustRun(t, "ln", "-s", "/var/lib/cni", "/run/same")
	assertContains(t, b.must("gc", "--apply", "--cache-dir", "/run/same").stdout, "1 removed, 0 skipped, 0 failed")
	assertEqual(t, "calls", b.calls(), delGone)
}

func TestGCFromAReport(t *testing.T) {
	b := attachTwo(t)
	report := filepath.Join(t.TempDir(), "report.json")
	b.must("gc", "--report", report)
	if text, err := os.ReadFile(report); err != nil || len(decode(t, string(text))["goes"].([]any)) != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	other := b.host.NewPod(t, "other") // dies after the report
	b.must("add", "demo", other.Path(), "--id", "other")
	other.Delete(t)
	b.host.MustRun(t, "touch", "-d", "2 minutes ago", "/var/lib/cni/results/demo-other-eth0")
	b.log()
	assertContains(t, b.must("gc", "--from", report).stdout, "1 removed, 0 skipped")
	assertEqual(t, "calls", b.calls(), delGone)
	assertContains(t, b.must("gc", "--from", report).stdout, "0 removed, 1 skipped", "it is gone already")
}

func TestGCFromAReportThatIsNotSoAnyMore(t *testing.T) {
	for why, changes := range map[string]string{
		"may be another one by now":                       "unshare --net=/run/netns/gone true",
		"libcni's result of it was written again since":   "touch -d '3 minutes ago' /var/lib/cni/results/demo-gone-eth0",
		"it is gone already":                              "rm /var/lib/cni/results/demo-gone-eth0",
		"it holds something that is not in the report: a": "mkdir -p /var/lib/cni/networks/demo; cd /var/lib/cni/networks/demo; printf 'gone\\r\\neth0' >10.1.2.3; touch -d '5 minutes ago' 10.1.2.3",
		"it is not a minute old":                          "touch /var/lib/cni/results/demo-gone-eth0",
	} {
		b := attachTwo(t)
		report := filepath.Join(t.TempDir(), "report.json")
		b.must("gc", "demo", "--report", report)
		b.host.MustRun(t, "sh", "-ec", changes)
		assertContains(t, b.must("gc", "--from", report).stdout, "0 removed, 1 skipped", "skipped", why)
		assertEqual(t, "calls", b.calls(), "")
		b.host.MustRun(t, "sh", "-c", "umount /run/netns/gone || true")
	}
}

func TestGCRefuses(t *testing.T) {
	b := attachTwo(t)
	dir := t.TempDir()
	file := func(name, text string) string { b.write(dir, name, text); return filepath.Join(dir, name) }
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"gc", "--valid", "gone"}, exitUsage, `--valid: "gone" is not CONTAINER-ID/INTERFACE`},
		{[]string{"gc", "--valid", "/eth0"}, exitUsage, "is not CONTAINER-ID/INTERFACE"},
		{[]string{"gc", "--valid-from", file("empty", "\n")}, exitUsage, "the list is empty"},
		{[]string{"gc", "--valid-from", file("wrong", "demo/gone/eth0\n")}, exitUsage, "is not CONTAINER-ID/INTERFACE"},
		{[]string{"gc", "--valid-from", filepath.Join(dir, "none")}, exitFailed, "no such file"},
		{[]string{"gc", "nosuch"}, exitFailed, `no network "nosuch"`},
		{[]string{"gc", "demo", "--from", file("report", "{}")}, exitUsage, "--from excludes"},
		{[]string{"gc", "--from", filepath.Join(dir, "report")}, exitFailed, "no report of gc of version 1"},
		{[]string{"gc", "--from", file("list", "[]")}, exitFailed, "no report of gc"},
		{[]string{"gc", "--from", file("elsewhere", `{"version": 1, "host": "elsewhere"}`)}, exitFailed, `of host "elsewhere"`},
		{[]string{"gc", "--report", dir}, exitFailed, "write the report"},
		{[]string{"gc", "--all"}, exitUsage, "unknown flag"},
		{[]string{"gc", "--yes-i-know"}, exitUsage, "unknown flag"},
	} {
		out := b.cnictl(c.args...)
		assertEqual(t, fmt.Sprint(c.args), out.code, c.code)
		assertContains(t, out.stderr, c.says)
	}
	assertEqual(t, "calls", b.calls(), "")
}

// lease writes a lease of host-local's.
func (b *bench) lease(dir, address, id, age string) {
	b.t.Helper()
	b.host.MustRun(b.t, "sh", "-ec", fmt.Sprintf(`mkdir -p %s; cd %s; printf '%s\r\neth0' >%s; touch -d %q %s`, dir, dir, id, address, age, address))
}

func TestGCLeavesWhatMayBeAnADDUnderWay(t *testing.T) {
	b := attachTwo(t)
	b.lease("/var/lib/cni/networks/demo", "10.1.2.9", "young", "50 seconds ago")
	out := b.must("gc", "--apply")
	assertContains(t, out.stdout, "1 removed", "young/eth0", "it is not known whether it runs")
	assertEqual(t, "calls", b.calls(), delGone)

	b = attachTwo(t)
	b.host.MustRun(t, "touch", "-d", "50 seconds ago", "/var/lib/cni/results/demo-gone-eth0")
	assertContains(t, b.must("gc", "--apply").stdout, "0 removed", "gone/eth0", "it is not a minute old")
	assertEqual(t, "calls", b.calls(), "")
}

// What no result names stays, and stops nothing else.
func TestGCKeepsWhatNoResultNames(t *testing.T) {
	b := attachTwo(t)
	b.lease("/var/lib/cni/networks/demo", "10.1.2.9", "stranger", "70 seconds ago")
	out := b.must("gc", "demo", "--apply")
	assertContains(t, out.stdout, "1 removed", "stranger/eth0", "1 in use, 1 others stay")
	assertContains(t, out.stderr, "--cache-dir", "cnictl del demo --id stranger --ifname eth0")
	assertEqual(t, "calls", b.calls(), delGone)
	assertEqual(t, "stops", len(decode(t, b.must("gc", "--json", "--apply").stdout)["stops"].([]any)), 0)
	b.must("gc", "demo", "--valid", "stranger/eth0", "--apply")
	assertEqual(t, "calls", b.calls(), "")
}

// A list of all that is valid says that what it does not have is gone, unless that is young or lives.
func TestGCWithAListOfAllThatIsValid(t *testing.T) {
	for list, goes := range map[string]string{"live/eth0": "stranger other gone", "live/eth0\nstranger/eth0": "other gone", "none": "stranger other gone"} {
		b := attachTwo(t)
		const dir = "/var/lib/cni/networks/demo"
		for i, id := range []string{"stranger", "other"} {
			b.lease(dir, fmt.Sprint("10.1.2.", 20+i), id, "70 seconds ago")
		}
		b.lease(dir, "10.1.2.22", "young", "50 seconds ago")
		file := filepath.Join(t.TempDir(), "list")
		b.write(filepath.Dir(file), "list", list+"\n")
		assertContains(t, b.must("gc", "--valid-from", file, "--apply").stdout, fmt.Sprintf("%d removed", len(strings.Fields(goes))), "1 in use")
		assertEqual(t, "calls", b.calls(), delGone)
		left := b.host.MustRun(t, "ls", dir)
		for address, id := range map[string]string{"10.1.2.20\n": "stranger", "10.1.2.21\n": "other", "10.1.2.22\n": "young"} {
			if is := strings.Contains(left, address); is == strings.Contains(goes, id) {
				t.Errorf("list %q: the lease of %s is there: %v", list, id, is)
			}
		}
	}
}

func TestGCLooksWhereTheNetworkKeepsItsLeases(t *testing.T) {
	b := newBench(t)
	for _, config := range []string{
		`{"type":"fake","ipam":{"type":"host-local","dataDir":"/run/leases"}}`,
		`{"type":"fake","IPAM":{"type":"host-local","DataDir":"/run/leases"}}`,
		`{"type":"fake","plugins":[{"type":"second"},{"type":"second","ipam":{"dataDir":"/run/leases"}}]}`,
		`{"type":"fake","delegate":{"ipam":{"dataDir":"/run/leases"}}}`,
	} {
		b.write(b.conf, "10-demo.conflist", `{"cniVersion":"1.1.0","name":"demo","plugins":[`+config+`]}`)
		b.must("gc", "demo")
		b.lease("/run/leases/demo", "10.1.2.9", "stranger", "70 seconds ago")
		assertContains(t, b.cnictl("gc", "demo").stderr, "stranger/eth0")
		b.host.MustRun(t, "rm", "-r", "/run/leases")
	}
}

// An ADD of a container that was started again is under way: the result is that of the first one.
func TestGCKeepsWhatIsNewerThanItsResult(t *testing.T) {
	b := attachTwo(t)
	b.lease("/var/lib/cni/networks/demo", "10.1.2.9", "gone", "2 minutes ago")
	assertContains(t, b.must("gc", "demo", "--apply").stdout, "0 removed", "gone/eth0", "libcni has no result of its last ADD")
	assertEqual(t, "calls", b.calls(), "")
}

// Of two caches the older one may have the namespace that lives.
func TestGCLooksAtAllResults(t *testing.T) {
	b := attachTwo(t)
	b.host.MustRun(t, "sh", "-ec", `mkdir -p /var/lib/cni/multus/results; cd /var/lib/cni/multus/results
		sed 's#/run/netns/gone#/run/netns/live#' /var/lib/cni/results/demo-gone-eth0 >demo-gone-eth0; touch -d '5 minutes ago' demo-gone-eth0`)
	assertContains(t, b.must("gc", "--apply").stdout, "0 removed", "2 in use")
	b.host.MustRun(t, "sed", "-i", "s#/run/netns/live#/run/netns/none#", "/var/lib/cni/multus/results/demo-gone-eth0")
	b.host.MustRun(t, "touch", "-d", "5 minutes ago", "/var/lib/cni/multus/results/demo-gone-eth0")
	assertContains(t, b.must("gc", "--apply").stdout, "1 removed")
	assertEqual(t, "files left", b.host.MustRun(t, "find", "/var/lib/cni", "-name", "demo-gone-eth0"), "")
}

func TestGCFreesWhatIsNobodys(t *testing.T) {
	b := newBench(t)
	const dir = "/var/lib/cni/networks/demo"
	b.host.MustRun(t, "sh", "-ec", "mkdir -p "+dir+"; cd "+dir+"; touch -d '2 minutes ago' 10.1.2.8; touch 10.1.2.9")
	assertContains(t, b.must("gc", "--apply").stdout, "1 removed", "address 10.1.2.8", "its file is empty or torn", "and not a minute old: an ADD may be under way")
	assertEqual(t, "leases left", b.host.MustRun(t, "sh", "-c", "cd "+dir+"; echo 10*"), "10.1.2.9\n")
}

func TestStatus(t *testing.T) {
	b := newBench(t)
	assertContains(t, b.must("status", "demo").stdout, "fake    ready", "second  ready")

	b.failing("STATUS")
	out := b.cnictl("status", "demo")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stdout, "fake    not ready: the pool is busy (code 11, try again later)", "wait a little")

	out = b.cnictl("status", "demo", "--json")
	assertEqual(t, "exit code", out.code, exitFailed)
	document := decode(t, out.stdout)
	assertEqual[any](t, "ready", document["ready"], false)
	first := document["plugins"].([]any)[0].(map[string]any)
	assertEqual[any](t, "type", first["type"], "fake")
	assertEqual[any](t, "msg", first["error"].(map[string]any)["msg"], "the pool is busy")
}

func TestStatusOfAnOldNetwork(t *testing.T) {
	b := newBench(t)
	b.write(b.conf, "10-demo.conflist", strings.Replace(demo, "1.1.0", "1.0.0", 1))
	assertContains(t, b.must("status", "demo").stdout, "none was asked")
	assertEqual(t, "calls", b.verbs(), "")
}
