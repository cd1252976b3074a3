package main

import (
	"fmt"
	"strings"
	"testing"
)

// attachTwo attaches a pod that stays and one that goes.
func attachTwo(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	live, gone := b.host.NewPod(t, "live"), b.host.NewPod(t, "gone")
	b.must("add", "demo", live.Path(), "--id", "live")
	b.must("add", "demo", gone.Path(), "--id", "gone")
	gone.DeleteKeepFile(t)
	b.log()
	return b
}

// valid returns the list of valid attachments that the plugins got.
func (b *bench) valid() string {
	b.t.Helper()
	list, ok := b.stdin("GC")["cni.dev/valid-attachments"].([]any)
	if !ok {
		b.t.Fatal("GC got no list of valid attachments")
	}
	texts := []string{}
	for _, a := range list {
		a := a.(map[string]any)
		texts = append(texts, fmt.Sprintf("%s/%s", a["containerID"], a["ifname"]))
	}
	return strings.Join(texts, " ")
}

// DEL leaves other attachments alone; GC would take those of an ADD that began a moment ago.
func TestGCCallsDELOfWhatIsGoneAndNothingElse(t *testing.T) {
	b := attachTwo(t)
	out := b.must("gc", "demo")
	assertContains(t, out.stdout, "1 attachments removed, 1 kept", "removed  gone/eth0", "kept     live/eth0: its network namespace /run/netns/live is there")
	assertEqual(t, "calls", strings.Join(b.log(), ", "), "second DEL gone /run/netns/gone eth0, fake DEL gone /run/netns/gone eth0")
}

func TestGCKeepsWhatIsNamed(t *testing.T) {
	b := attachTwo(t)
	out := b.must("gc", "demo", "--valid", "gone/eth0", "--valid", "elsewhere/eth1", "--json")
	document := decode(t, out.stdout)
	assertEqual(t, "removed", len(document["removed"].([]any)), 0)
	assertEqual(t, "kept", len(document["kept"].([]any)), 2)
	assertContains(t, out.stdout, `"why": "it is named"`)
	assertEqual(t, "calls", b.verbs(), "")
}

func TestGCAllSendsAnEmptyList(t *testing.T) {
	b := attachTwo(t)
	out := b.must("gc", "demo", "--all")
	assertContains(t, out.stdout, "2 attachments removed, 0 kept")
	assertEqual(t, "valid", b.valid(), "")
}

func TestGCGoesOnAfterAFailure(t *testing.T) {
	b := attachTwo(t)
	b.failing("DEL")
	out := b.cnictl("gc", "demo", "--all")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stdout, "0 attachments removed, 2 kept")
	assertContains(t, out.stderr, "stale attachment gone eth0", "stale attachment live eth0", "code:    11")
	assertEqual(t, "calls", b.verbs(), "second DEL, second DEL, fake GC, second GC")
	decode(t, b.cnictl("gc", "demo", "--all", "--json").stdout) // one document

	out = b.cnictl("gc", "demo")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stdout, "0 attachments removed, 2 kept")
	assertContains(t, out.stderr, "stale attachment gone eth0")
}

func TestGCOfAnOldNetwork(t *testing.T) {
	b := attachTwo(t)
	b.write(b.conf, "10-demo.conflist", strings.Replace(demo, "1.1.0", "1.0.0", 1))
	b.must("gc", "demo")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL")
	out := b.must("gc", "demo", "--all")
	assertContains(t, out.stderr, "cniVersion 1.0.0", "since 1.1.0")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL")
}

func TestGCDisabled(t *testing.T) {
	b := attachTwo(t)
	b.write(b.conf, "10-demo.conflist", strings.Replace(demo, `"name"`, `"disableGC": true, "name"`, 1))
	assertContains(t, b.must("gc", "demo").stderr, "nothing is done")
	assertContains(t, b.must("gc", "demo", "--all", "--json").stdout, `"removed": []`)
	assertEqual(t, "calls", b.verbs(), "")
}

// lease writes a lease of host-local's.
func (b *bench) lease(dir, address, id, age string) {
	b.t.Helper()
	b.host.MustRun(b.t, "sh", "-ec", fmt.Sprintf(`mkdir -p %s; cd %s; printf '%s\r\neth0' >%s; touch -d %q %s`, dir, dir, id, address, age, address))
}

func TestGCLeavesWhatMayBeAnADDUnderWay(t *testing.T) {
	b := attachTwo(t)
	b.lease("/var/lib/cni/networks/demo", "10.1.2.9", "young", "50 seconds ago")
	out := b.must("gc", "demo")
	assertContains(t, out.stdout, "removed  gone/eth0", "kept     young/eth0: it is not a minute old")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL")
}

func TestGCStopsAtWhatNoResultNames(t *testing.T) {
	b := attachTwo(t)
	b.lease("/var/lib/cni/networks/demo", "10.1.2.9", "stranger", "70 seconds ago")
	out := b.cnictl("gc", "demo")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stderr, "nothing is removed", "stranger/eth0 (address 10.1.2.9 since ", "--cache-dir", "--valid stranger/eth0", "cnictl del demo --id stranger --ifname eth0")
	assertEqual(t, "calls", b.verbs(), "")
	b.must("gc", "demo", "--valid", "stranger/eth0")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL")
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
	b.lease("/var/lib/cni/networks/demo", "10.1.2.9", "gone", "2 seconds")
	assertContains(t, b.must("gc", "demo").stdout, "0 attachments removed", "kept     gone/eth0: its address 10.1.2.9 is newer than its result")
	assertEqual(t, "calls", b.verbs(), "")
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
