package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// assertClean makes sure that plugins were called with ADD and DEL, and that no namespace is left.
func (b *bench) assertClean(calls string) {
	b.t.Helper()
	assertEqual(b.t, "calls", b.verbs(), calls)
	assertEqual(b.t, "namespaces", b.host.MustRun(b.t, "ls", "/run/netns"), "")
}

const addedAndDeleted = "fake ADD, second ADD, second DEL, fake DEL"

func TestRun(t *testing.T) {
	b := newBench(t)
	out := b.cnictl("run", "--net", "demo", "--id", "box", "-p", "8080:80", "--",
		"sh", "-c", "ip -o link; ls /run/netns; cat; exit 7")
	assertEqual(t, "exit code", out.code, 7)
	assertContains(t, out.stdout, "lo: <LOOPBACK,UP", "box\n")
	assertEqual(t, "lines", strings.Count(out.stdout, "\n"), 2) // nothing but lo in it
	assertContains(t, out.stderr, "attached /run/netns/box to network demo as eth0", "10.1.2.3/24", "port 8080 -> 80/tcp")
	b.assertClean(addedAndDeleted)
}

func TestRunMakesIDs(t *testing.T) {
	b := newBench(t)
	out := b.must("run", "-q", "--net", "demo", "true")
	assertEqual(t, "output", out.stdout+out.stderr, "")
	first := strings.Fields(b.log()[0])
	assertContains(t, first[2], "cnictl-")
	assertEqual(t, "namespace", first[3], "/run/netns/"+first[2])
	b.must("run", "-q", "--net", "demo", "true")
	if second := strings.Fields(b.log()[0]); first[2] == second[2] {
		t.Error("two containers have the same id")
	}
}

func TestRunUndoesAFailedAdd(t *testing.T) {
	b := newBench(t)
	b.failing("ADD")
	out := b.cnictl("run", "--net", "demo", "--", "echo", "never")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertEqual(t, "output", out.stdout, "")
	assertContains(t, out.stderr, "the pool is busy", "wait a little")
	b.assertClean("fake ADD, second DEL, fake DEL")
}

func TestRunReportsAFailedDel(t *testing.T) {
	b := newBench(t)
	b.failing("DEL")
	out := b.cnictl("run", "--net", "demo", "--id", "box", "--", "true")
	assertEqual(t, "exit code", out.code, exitFailed)
	assertContains(t, out.stderr, "cnictl del demo --id box --ifname eth0", "the pool is busy")
	b.assertClean("fake ADD, second ADD, second DEL, fake DEL")

	out = b.cnictl("run", "--net", "demo", "--id", "other", "--", "sh", "-c", "exit 9")
	assertEqual(t, "exit code", out.code, 9)
}

func TestRunRefusesBeforeAnythingIsMade(t *testing.T) {
	b := newBench(t)
	pod := b.host.NewPod(t, "taken")
	b.must("add", "demo", pod.Path(), "--id", "attached")
	b.log()
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--net", "demo", "--", "no-such-command"}, "no-such-command"},
		{[]string{"--net", "nosuch", "--", "true"}, `no network "nosuch"`},
		{[]string{"--net", "demo", "--id", "taken", "--", "true"}, "/run/netns/taken exists already"},
		{[]string{"--net", "demo", "--id", "attached", "--", "true"}, "attached to network demo already"},
	}
	for _, test := range tests {
		out := b.cnictl(append([]string{"run"}, test.args...)...)
		assertEqual(t, "exit code", out.code, exitFailed)
		assertContains(t, out.stderr, test.want)
	}
	assertEqual(t, "calls", b.verbs(), "")
	assertEqual(t, "namespaces", b.host.MustRun(t, "ls", "/run/netns"), "taken\n")
}

// The DEL at the end would take what another container has.
func TestRunRefusesAnIDThatMayBeInUse(t *testing.T) {
	b := newBench(t)
	refused := func() {
		t.Helper()
		out := b.cnictl("run", "--net", "demo", "--id", "box", "--", "true")
		assertEqual(t, "exit code", out.code, exitFailed)
		assertContains(t, out.stderr, "attached to network demo already")
		b.assertClean("")
	}
	b.lease("/var/lib/cni/networks/demo", "10.1.2.9", "box", "1 day ago")
	refused()
	b.host.MustRun(t, "rm", "/var/lib/cni/networks/demo/10.1.2.9")
	b.host.Feed(t, `{"kind`, "sh", "-c", "mkdir -p /var/lib/cni/results; cat >/var/lib/cni/results/demo-box-eth1")
	refused()
	b.must("run", "--net", "demo", "--id", "box2", "--", "true")
}

// background starts cnictl run and returns when its command has said "up".
func (b *bench) background(shell string) *exec.Cmd {
	b.t.Helper()
	cmd, _, stderr := b.command("run", "--net", "demo", "--", "sh", "-c", shell)
	reader, writer, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer reader.Close()
	cmd.Stdout = writer
	if err := b.host.Start(cmd); err != nil {
		b.t.Fatal(err)
	}
	writer.Close()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil || line != "up\n" {
		b.t.Fatalf("got %q, %v: %s", line, err, stderr)
	}
	return cmd
}

func TestRunPassesSignalsOn(t *testing.T) {
	tests := []struct {
		name, shell string
		signal      syscall.Signal
		want        int
	}{
		{"killed by it", "echo up; exec sleep 1000", syscall.SIGTERM, 128 + 15},
		{"handles it", "trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done", syscall.SIGUSR1, 9}, // not SIGHUP, which nohup has all ignore,
		{"interrupt", "echo up; exec sleep 1000", syscall.SIGINT, 128 + 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			cmd := b.background(test.shell)
			if err := cmd.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			assertEqual(t, "exit code", cmd.ProcessState.ExitCode(), test.want)
			b.assertClean(addedAndDeleted)
		})
	}
}

// A plugin that is at work when the signal comes gets to undo what it did.
func TestRunStoppedDuringAdd(t *testing.T) {
	b := newBench(t)
	b.write(b.bin, "hook.ADD", `
trap 'kill $!; echo "{\"code\":11,\"msg\":\"stopped, and undone\"}"; exit 1' TERM
sleep 1000 &
touch "$dir/waiting"
wait`)
	cmd, _, stderr := b.command("run", "--net", "demo", "--", "echo", "never")
	if err := b.host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	netlab.Until(t, "the plugin to be called", func() bool {
		_, err := os.Stat(filepath.Join(b.bin, "waiting"))
		return err == nil
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	assertEqual(t, "exit code", cmd.ProcessState.ExitCode(), exitFailed)
	assertContains(t, stderr.String(), "stopped by signal terminated", "stopped, and undone")
	b.assertClean("fake ADD, second DEL, fake DEL")
}

func TestRunGivesNameServers(t *testing.T) {
	b := newBench(t)
	before := b.host.MustRun(t, "cat", "/etc/resolv.conf")
	b.write(b.bin, "result", `{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}],
		"dns":{"nameservers":["10.1.2.1","10.1.2.2"],"domain":"example.org","search":["a.example","b.example"],"options":["ndots:2"]}}`)
	out := b.must("run", "-q", "--net", "demo", "--", "sh", "-c", "cat /etc/resolv.conf; pwd")
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	assertEqual(t, "resolv.conf and directory inside", out.stdout,
		"domain example.org\nsearch a.example b.example\nnameserver 10.1.2.1\nnameserver 10.1.2.2\noptions ndots:2\n"+working+"\n")
	assertEqual(t, "resolv.conf outside", b.host.MustRun(t, "cat", "/etc/resolv.conf"), before)
}
