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

func TestGCKeepsWhatMayBeInUse(t *testing.T) {
	b := attachTwo(t)
	out := b.must("gc", "demo")
	assertContains(t, out.stdout, "1 attachments removed, 1 kept", "removed  gone/eth0", "kept     live/eth0")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL, fake GC, second GC")
	assertEqual(t, "valid", b.valid(), "live/eth0")
}

func TestGCKeepsWhatIsNamed(t *testing.T) {
	b := attachTwo(t)
	out := b.must("gc", "demo", "--valid", "gone/eth0", "--valid", "elsewhere/eth1", "--json")
	document := decode(t, out.stdout)
	assertEqual(t, "removed", len(document["removed"].([]any)), 0)
	assertEqual(t, "kept", len(document["kept"].([]any)), 2)
	assertEqual(t, "valid", b.valid(), "gone/eth0 elsewhere/eth1 live/eth0")
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
}

func TestGCOfAnOldNetwork(t *testing.T) {
	b := attachTwo(t)
	b.write(b.conf, "10-demo.conflist", strings.Replace(demo, "1.1.0", "1.0.0", 1))
	out := b.must("gc", "demo")
	assertContains(t, out.stderr, "cniVersion 1.0.0", "since 1.1.0")
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL")
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
