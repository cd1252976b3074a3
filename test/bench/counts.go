package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// counts counts what ADD and DEL do.
func (r *runner) counts(b *testing.B, scenario string) {
	for _, s := range r.newSubjects(b, everyone, usual(hostLocal), "0") {
		pod := r.makePods(b, s.Host, 1)[0]
		r.warmUp(b, s, pod)
		for _, verb := range batchVerbs {
			t := s.traced(b, verb, s.conf(pod, measuredPort))
			for _, c := range []struct {
				metric string
				n      int
			}{{"execs", t.execs}, {"processes", t.processes}, {"sends", t.sends}, {"messages", t.messages}, {"calls", t.calls}} {
				r.results.Add(s.point(scenario, verb+" "+c.metric), "", float64(c.n))
			}
		}
	}
}

// traced makes a call with every plugin under strace, which keeps it from seeing that orphans are reaped.
func (s *subject) traced(b testing.TB, verb string, rt *libcni.RuntimeConf) (t tally) {
	b.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		b.Fatalf("count system calls: %v (make setup installs it)", err)
	}
	dir, n := b.TempDir(), 0
	_, err = s.call(func(cmd *exec.Cmd) error {
		n++
		trace := filepath.Join(dir, fmt.Sprint(verb, n))
		cmd.Env = append(cmd.Env, "CNIBOX_DETACH=always")
		under(cmd, strace, "-f", "-qq", "-yy", "-e", "signal=none", "-o", trace)
		if err := cmd.Run(); err != nil {
			return err
		}
		text, err := os.ReadFile(trace)
		t.count(string(text))
		return err
	}, verb, rt)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// tally is what processes did, by the trace of strace.
type tally struct {
	execs     int // programs executed
	processes int // processes started (threads are not)
	sends     int // calls that send to netlink sockets
	messages  int // what they sent
	calls     int // system calls
}

// count adds what a trace has, made with -f and -yy: each line begins with the number of the process, and descriptors are
// followed by what they are.
func (t *tally) count(trace string) {
	for line := range strings.Lines(trace) {
		_, line, _ = strings.Cut(line, " ")
		line = strings.TrimSpace(line)
		// An exec that succeeded: that is seen where its line ends.
		if (strings.HasPrefix(line, "execve(") || strings.HasPrefix(line, "<... execve resumed>")) && strings.HasSuffix(line, "= 0") {
			t.execs++
		}
		name, args, called := strings.Cut(line, "(")
		if !called || strings.ContainsAny(name, "<+-") {
			continue // the rest of a call that another process came between, an exit, a signal
		}
		t.calls++
		switch name {
		case "fork", "vfork", "clone", "clone3":
			if !strings.Contains(args, "CLONE_THREAD") {
				t.processes++
			}
		case "sendto", "sendmsg", "sendmmsg", "write":
			if descriptor, _, _ := strings.Cut(args, ","); strings.Contains(descriptor, "<NETLINK:") {
				t.sends++
				// Each has a header. One that is not in the trace decoded is a single one, that of an orphan.
				t.messages += max(1, strings.Count(args, "{nlmsg_len="))
			}
		}
	}
}
