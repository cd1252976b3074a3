package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestAddCheckDel(t *testing.T) {
	b := newBench(t)
	const id = "cnitool-82e215debf7df4651d36" // cnitool's for /run/netns/web

	out := b.must("add", "demo", "/run/netns/web", "-p", "8080:80", "-p", "[::1]:53:53/udp")
	assertContains(t, out.stdout, "attached /run/netns/web to network demo as eth0", id,
		"eth0 (container)", "veth1 (host)", "10.1.2.3/24, gateway 10.1.2.1", "0.0.0.0/0 via 10.1.2.1",
		"port 8080 -> 80/tcp", "[::1]:53 -> 53/udp")
	want := []string{"fake ADD " + id + " /run/netns/web eth0", "second ADD " + id + " /run/netns/web eth0"}
	for i, line := range b.log() {
		assertEqual(t, "call", line, want[i])
	}

	// What was published is known without being said again.
	out = b.must("check", "demo", "/run/netns/web")
	assertContains(t, out.stdout, "eth0", id, "ok")
	assertEqual(t, "calls", b.verbs(), "fake CHECK, second CHECK")

	out = b.must("del", "demo", "--netns", "/run/netns/web", "--json")
	document := decode(t, out.stdout)
	assertEqual[any](t, "status", document["status"], "deleted")
	assertEqual[any](t, "id", document["containerID"], id)
	assertEqual(t, "calls", b.verbs(), "second DEL, fake DEL")
	ports := b.stdin("DEL")["runtimeConfig"].(map[string]any)["portMappings"].([]any)
	assertEqual(t, "port maps given to DEL", len(ports), 2)
	assertEqual[any](t, "second port map", ports[1].(map[string]any)["hostIP"], "::1")

	b.must("del", "demo", "/run/netns/web") // again is fine
}

func TestAddJSONIsTheResult(t *testing.T) {
	b := newBench(t)
	out := b.must("add", "demo", "/run/netns/web", "--json")
	if got, want := decode(t, out.stdout), decode(t, result); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEnvironmentOfCnitool(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "CNI_IFNAME=net7", "CNI_ARGS=A=1;B=2;", `CAP_ARGS={"portMappings":[{"hostPort":1,"containerPort":2,"protocol":"tcp"}]}`)
	out := b.must("add", "demo", "/run/netns/web", "--id", "box", "-p", "3:4")
	assertContains(t, out.stdout, "port 1 -> 2/tcp", "port 3 -> 4/tcp")
	assertEqual(t, "call", b.log()[0], "fake ADD box /run/netns/web net7 A=1;B=2")
	b.must("add", "demo", "/run/netns/other", "--id", "box2", "--ifname", "net8")
	assertContains(t, b.log()[0], " net8 ")
}

func TestDelByIDAlone(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "CNI_ARGS=A=1")
	b.must("add", "demo", "/run/netns/web", "--id", "box")
	b.log()
	b.env = b.env[:len(b.env)-1]
	// Neither namespace nor arguments are given, and the network is gone.
	if err := os.Remove(filepath.Join(b.conf, "10-demo.conflist")); err != nil {
		t.Fatal(err)
	}
	b.must("del", "demo", "--id", "box")
	assertEqual(t, "call", b.log()[0], "second DEL box /run/netns/web eth0 A=1")
}

func TestFailedAddExplainsItself(t *testing.T) {
	b := newBench(t)
	b.failing("ADD")
	out := b.cnictl("add", "demo", "/run/netns/web")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertEqual(t, "output", out.stdout, "")
	assertContains(t, out.stderr, `cnictl add: plugin type="fake"`, "the pool is busy", "details: wait a little", "code:    11 (try again later)")

	out = b.cnictl("add", "demo", "/run/netns/web", "--json")
	assertEqual(t, "exit code", out.code, exitFailed)
	var document errorDocument
	if err := json.Unmarshal([]byte(out.stdout), &document); err != nil {
		t.Fatal(err, out)
	}
	assertEqual(t, "code", document.Code, 11)
	assertEqual(t, "details", document.Details, "wait a little")
	assertEqual(t, "version", document.CNIVersion, "1.1.0")
	assertContains(t, document.Msg, "the pool is busy")
}

func TestPluginThatDiesWithoutADocument(t *testing.T) {
	b := newBench(t)
	b.write(b.bin, "hook.ADD", "echo no such luck >&2; kill -KILL $$")
	out := b.cnictl("add", "demo", "/run/netns/web")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stderr, b.bin+"/fake ended without an error document", "killed", "no such luck")
}

func TestErrorsSayWhatToDo(t *testing.T) {
	b := newBench(t)
	b.write(b.conf, "00-broken.conflist", "{")
	b.write(b.conf, "20-plain.conf", `{"cniVersion":"1.1.0","name":"plain","type":"fake"}`)
	b.write(b.conf, "30-lost.conf", `{"cniVersion":"1.1.0","name":"lost","type":"nowhere"}`)
	b.must("add", "plain", "/run/netns/web") // in spite of the broken file
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"add", "nosuch", "/run/netns/web"}, []string{`no network "nosuch" in ` + b.conf, "demo, lost, plain", "--conf-dir", "00-broken.conflist can't be used"}},
		{[]string{"add", "plain", "/run/netns/web", "-p", "1:2"}, []string{"network plain can't publish ports", "portmap"}},
		{[]string{"add", "lost", "/run/netns/web"}, []string{`"nowhere" is not in ` + b.bin, "cnictl install", "code:    7"}},
		{[]string{"add", "demo", "/run/netns/web", "--id", "a/b"}, []string{"invalid characters in containerID"}},
		{[]string{"install", "--dir", t.TempDir(), "--from", "/bin/true"}, []string{"not a cnibox binary", "--from"}},
		{[]string{"uninstall", "--dir", t.TempDir()}, []string{"installed nothing there"}},
	}
	for _, test := range tests {
		out := b.cnictl(test.args...)
		assertEqual(t, "exit code", out.code, exitFailed)
		assertContains(t, out.stderr, test.want...)
	}
}

// DEL works from the key: a result that can't be read does not stop it, and one that libcni would wait for is named.
func TestBrokenResults(t *testing.T) {
	b := newBench(t)
	pod := b.host.NewPod(t, "web")
	const file = "/var/lib/cni/results/demo-web-eth0"
	for _, text := range []string{"", "null", "{", `{"kind":"cniCacheV1","networkName":"demo","containerId":"other","ifName":"eth0","netns":"/run/netns/other"}`} {
		b.must("add", "demo", pod.Path(), "--id", "web")
		b.host.Feed(t, text, "sh", "-c", "cat >"+file)
		b.log()
		b.must("del", "demo", "--id", "web")
		assertEqual(t, "calls", strings.Join(b.log(), ", "), "second DEL web  eth0, fake DEL web  eth0")
	}
	for _, makes := range []string{"mkfifo " + file, "truncate -s 4G " + file, "ln -s /dev/zero " + file, "mkdir " + file} {
		b.host.MustRun(t, "sh", "-c", makes)
		for _, verb := range []string{"add", "check", "del"} {
			out := b.cnictl(verb, "demo", pod.Path(), "--id", "web")
			assertEqual(t, verb+" beside "+makes, out.code, exitFailed)
			assertContains(t, out.stderr, file, "--cache-dir")
		}
		out := b.cnictl("run", "--net", "demo", "--id", "web", "true")
		assertEqual(t, "run beside "+makes, out.code, exitFailed)
		assertContains(t, out.stderr, file)
		assertEqual(t, "calls", b.verbs(), "")
		b.host.MustRun(t, "rm", "-r", file)
	}
}
