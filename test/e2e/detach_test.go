package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// leaveOrphan has a DEL leave its end to an orphan, whether or not orphans are
// reaped here, and tell so.
var leaveOrphan = []string{"CNIBOX_DETACH=always", "CNIBOX_TRACE=1"}

const leftToOrphan = "leave the end to an orphan"

// detaching are plugins whose DEL leaves its end to an orphan: one whose link is the host's, and one whose link is in the container.
var detaching = []struct{ plugin, conf string }{
	{"bridge", bridgeConf},
	{"macvlan", `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":{"type":"host-local","subnet":"10.99.0.0/24"}}`},
}

// TestDetachedDel attaches and detaches the same container again and again.
// What a DEL has answered is gone, so the next ADD, of the same names, and the
// end of the namespace may follow at once.
func TestDetachedDel(t *testing.T) {
	t.Parallel()
	for _, tt := range detaching {
		t.Run(tt.plugin, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			warm(t, host, demo)
			before := host.Snapshot(t)
			pod := host.NewPod(t, "web")
			const rounds = 60
			for round := range rounds {
				if r := host.Exec(t, tt.plugin, pod.Call("ADD", tt.conf)); r.ExitCode != 0 {
					t.Fatalf("round %d: ADD: %v", round, r)
				}
				del := pod.Call("DEL", tt.conf)
				del.Env = leaveOrphan
				r := host.Exec(t, tt.plugin, del)
				if r.ExitCode != 0 || r.Stdout != "" || !strings.Contains(r.Stderr, leftToOrphan) {
					t.Fatalf("round %d: DEL: %v", round, r)
				}
				if round%3 == 0 {
					pod.Replace(t)
				}
			}
			pod.Delete(t)
			alone(t, host)
			if left := before.Diff(host.Snapshot(t), storeFiles...); left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// TestKilledDetachedDel kills a DEL, or its orphan, in each of the system calls
// that change something or wait. The next DEL removes what is left.
func TestKilledDetachedDel(t *testing.T) {
	t.Parallel()
	for _, tt := range detaching {
		t.Run(tt.plugin, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			warm(t, host, demo)
			pod := host.NewPod(t, "web")
			before, inside := host.Snapshot(t), pod.Snapshot(t)
			for _, call := range []string{"sendto", "recvfrom", "sendmsg", "recvmsg", "clone", "execve", "write", "renameat", "exit_group"} {
				for n := 1; ; n++ {
					if n > 60 {
						t.Fatalf("%s: killed 60 times, and no end", call)
					}
					if r := host.Exec(t, tt.plugin, pod.Call("ADD", tt.conf)); r.ExitCode != 0 {
						t.Fatalf("%s %d: ADD: %v", call, n, r)
					}
					more := killIn(t, host, pod, tt.plugin, tt.conf, call, n)
					del := pod.Call("DEL", tt.conf)
					del.Env = []string{"CNIBOX_DETACH=never"}
					if r := host.Exec(t, tt.plugin, del); r.ExitCode != 0 {
						t.Errorf("%s %d: DEL after a kill: %v", call, n, r)
					}
					if left := before.Diff(host.Snapshot(t), storeFiles...) + inside.Diff(pod.Snapshot(t)); left != "" {
						t.Errorf("%s %d: DEL left:\n%s", call, n, left)
					}
					if !more {
						break
					}
				}
			}
			alone(t, host)
		})
	}
}

// killIn runs a DEL of which each thread and process is killed as it enters the
// call for the n-th time. It returns false if none did.
func killIn(t *testing.T, host *netlab.Host, pod *netlab.Pod, plugin, conf, call string, n int) (killed bool) {
	t.Helper()
	del := pod.Call("DEL", conf)
	del.Env = leaveOrphan[:1] // a trace would be written
	cmd := host.PluginCommand(t, plugin, del)
	log := filepath.Join(t.TempDir(), "log")
	args := []string{"-f", "-o", log, "-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, n), cmd.Path}
	strace := host.Command("strace", append(args, cmd.Args[1:]...)...)
	strace.Env, strace.Stdin = cmd.Env, cmd.Stdin
	_, _ = host.Output(strace)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "killed by SIGKILL")
}

// alone waits until none of the Host's processes is left but the test.
func alone(t *testing.T, host *netlab.Host) {
	t.Helper()
	var ours unix.Stat_t
	host.Do(func() {
		if err := unix.Stat("/proc/thread-self/ns/mnt", &ours); err != nil {
			t.Error(err)
		}
	})
	netlab.Until(t, "the second process of DEL to end", func() bool {
		spaces, _ := filepath.Glob("/proc/[0-9]*/ns/mnt")
		for _, path := range spaces {
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil && st.Ino == ours.Ino {
				return false
			}
		}
		return true
	})
}

// TestDetachedDelWhereItIsSafe runs a container runtime under first processes
// that do and do not reap what they did not start. Left alone, DEL finds out and
// leaves orphans only where it may; an orphan that nobody reaps is one too many
// for the second.
func TestDetachedDelWhereItIsSafe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		first   string // what the first process does
		decided string
		zombies int
	}{
		{"first process reaps", "while :; do sleep 0.05; done", leftToOrphan, 0},
		{"first process never reaps", "exec sleep infinity", "wait for the end", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			pod := host.NewPod(t, "web")
			call := pod.Call("", bridgeConf)
			cmd := host.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", "mount -t proc proc /proc; ( "+runtime+" ) & "+tt.first)
			cmd.Env = append(os.Environ(), "CNI_CONTAINERID="+call.ContainerID, "CNI_NETNS="+call.Netns, "CNI_IFNAME=eth0", "CNI_PATH="+call.Path, "CONF="+bridgeConf, "ZOMBIES="+strconv.Itoa(tt.zombies))
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = os.Stderr
			host.Background(t, cmd)
			var lines []string
			for scanner := bufio.NewScanner(stdout); scanner.Scan() && scanner.Text() != "end"; {
				lines = append(lines, scanner.Text())
			}
			if len(lines) < 3 {
				t.Fatalf("the runtime printed %q", lines)
			}
			decisions, zombies := lines[:len(lines)-1], lines[len(lines)-1]
			for _, d := range decisions[1:] {
				if !strings.Contains(d, tt.decided) {
					t.Errorf("decided: %s, want %s", d, tt.decided)
				}
			}
			if zombies != strconv.Itoa(tt.zombies) {
				t.Errorf("%s zombies, want %d; decisions:\n%s", zombies, tt.zombies, strings.Join(decisions, "\n"))
			}
		})
	}
}

// runtime calls ADD and DEL, prints what each DEL decided, then the number of
// zombies, and then "end". After each call it waits until what is left of the plugin is as many zombies as there may
// be, or for five seconds.
const runtime = `
call() { CNI_COMMAND=$1 CNIBOX_TRACE=1 /opt/cni/bin/bridge <<<"$CONF" >/dev/null 2>/run/trace; }
left() { cat /proc/[0-9]*/stat 2>/dev/null | grep -c "(exe) $1"; }
for i in 1 2 3 4 5 6; do
	call ADD
	call DEL
	grep orphan /run/trace
	for wait in {1..250}; do
		[ $(left) = $ZOMBIES ] && [ $(left Z) = $ZOMBIES ] && break
		sleep 0.02
	done
done
left Z
echo end`
