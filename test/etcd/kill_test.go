//go:build amd64

package etcd

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"

	"github.com/cnibox/cnibox/test/crash/tracer"
)

// atEnv has the number of the call at which the plugin in the arguments is to be killed.
const atEnv = "ETCD_KILL_AT"

// suspendEnv has the text of the call at which it is to be suspended, and the file that says so.
const suspendEnv = "ETCD_SUSPEND_AT"

func init() {
	if text, file, ok := strings.Cut(os.Getenv(suspendEnv), "="); ok {
		os.Exit(tracer.Suspend(text, file, os.Args[1], os.Args[2:]...))
	}
	if at, err := strconv.Atoi(os.Getenv(atEnv)); err == nil {
		os.Exit(tracer.Run(at, os.Args[1], os.Args[2:]...))
	}
}

// TestKill kills the plugin at its calls that change something: on the host, or in etcd by what it sends. DEL then frees all, and of another
// attachment nothing.
func TestKill(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	for _, verb := range []string{"ADD", "DEL", "second-ADD"} {
		t.Run(verb, func(t *testing.T) {
			h, n := c.hosts[0], dual("killed-"+strings.ToLower(verb))
			want := holding{}.set(h, "other", h.add(t, "other", n)...)
			points := 0
			for at := 1; ; at += long(5, 1) {
				with := maps.Clone(want)
				if verb != "ADD" {
					with.set(h, "web", h.add(t, "web", n)...)
				}
				where := h.killAt(t, strings.TrimPrefix(verb, "second-"), at, n)
				if where == "" && points > 0 {
					h.must(t, "DEL", "web", n)
					break
				}
				points++
				if verb == "second-ADD" { // which is refused, and leaves what there is
					h.keep(t, n)
					c.holds(t, n, with)
				}
				h.must(t, "DEL", "web", n)
				c.holds(t, n, want)
				if held := strings.Fields(h.MustRun(t, "ls", "/var/lib/cni/etcd/"+n.name+"/held")); len(held) != 1 || held[0] != "other:eth0" {
					t.Errorf("%s: held are %v", where, held)
				}
				if t.Failed() {
					t.Fatal(where)
				}
			}
			t.Logf("killed at %d calls", points)
			if left := h.MustRun(t, "ls", "/var/lib/cni/etcd/"+n.name+"/open"); left != "" {
				t.Errorf("open: %s", left)
			}
			h.must(t, "DEL", "other", n)
			c.holds(t, n, holding{})
		})
	}
}

// killAt begins a verb and kills it before the n-th call that changes something, which it returns; "" if there are fewer.
func (h *host) killAt(t testing.TB, verb string, at int, n network) (where string) {
	t.Helper()
	call := h.call(verb, "web", n)
	call.Env = []string{atEnv + "=" + strconv.Itoa(at)}
	cmd := h.PluginCommand(t, "/proc/self/exe", call)
	cmd.Args = append([]string{os.Args[0]}, "/opt/cni/bin/etcd")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := h.Run(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == tracer.Killed {
		return fmt.Sprintf("%d: %s", at, strings.TrimSpace(stderr.String()))
	}
	return ""
}

// suspended begins an ADD of web that is suspended at the call with a text, makes sure that it gets there, and returns the file that it goes on without.
func (h *host) suspended(t testing.TB, text string, n network) (cmd *exec.Cmd, file string) {
	t.Helper()
	file = "/run/" + n.name
	call := h.call("ADD", "web", n)
	call.Env = []string{suspendEnv + "=" + text + "=" + file}
	cmd = h.PluginCommand(t, "/proc/self/exe", call)
	cmd.Args = append([]string{os.Args[0]}, "/opt/cni/bin/etcd")
	cmd.Stdout = &strings.Builder{}
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, func() error { return h.Run(h.Command("test", "-e", file)) })
	return cmd, file
}

// TestLate has a member carry out an ADD when its attachment is gone: it was paused when it was sent that, and is not told that nobody waits for it.
func TestLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	for _, verbs := range []string{"DEL", "ADD DEL", "DEL ADD DEL"} {
		t.Run(verbs, func(t *testing.T) {
			n := dual("late-" + strings.ReplaceAll(strings.ToLower(verbs), " ", "-"))
			late, h := c.hosts[0], c.hosts[1]
			if c.leader(t) == late { // without one the cluster drops what it was sent
				late, h = h, late
			}
			want := holding{}.set(h, "other", h.add(t, "other", n)...) // and a lease, so that an ADD sends no more than its transaction
			cmd, file := h.suspended(t, "/attachments/", n.with("endpoints", []string{late.endpoint()}))
			// queued is how much the member has not read of what the ADD has sent, -1 while it has no connection on which the member has said a word.
			queued := func() int {
				for line := range strings.Lines(late.MustRun(t, "ss", "-HtniO", "state", "established", "sport = :2379 and dst "+h.address)) {
					if bytes, err := strconv.Atoi(strings.Fields(line)[0]); err == nil && strings.Contains(line, "bytes_acked:") {
						return bytes
					}
				}
				return -1
			}
			await := func(want bool) {
				t.Helper()
				netlab.Eventually(t, func() error {
					if got := queued(); got < 0 || (got > 0) != want {
						return fmt.Errorf("%d bytes wait for the member", got)
					}
					return nil
				})
			}
			await(false)
			late.pauseMember()
			h.MustRun(t, "rm", file)
			await(true)
			late.MustRun(t, "nft", "table inet late { chain input { type filter hook input priority 0; ip saddr "+h.address+" tcp dport 2379 drop; }; }")
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			for verb := range strings.FieldsSeq(verbs) {
				h.must(t, verb, "web", n)
			}
			c.holds(t, n, want)
			late.continueMember()
			await(false)
			late.MustRun(t, "nft", "delete table inet late")
			late.add(t, "after", n.with("endpoints", []string{late.endpoint()}))
			late.must(t, "DEL", "after", n)
			c.holds(t, n, want)
		})
	}
}

// TestSuspended has an ADD suspended for longer than the grace, when it has its address and has not noted that. Another host is given the address
// meanwhile, so the ADD fails when it goes on: whether its host has found out by then or not.
func TestSuspended(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	late, other := c.hosts[0], c.hosts[1]
	for _, hasFoundOut := range []bool{false, true} {
		t.Run(fmt.Sprint(hasFoundOut), func(t *testing.T) {
			t.Parallel()
			n := network{name: fmt.Sprint("suspended-", hasFoundOut), ranges: `[[{"subnet":"10.70.0.0/24","rangeStart":"10.70.0.2","rangeEnd":"10.70.0.2"}]]`}
			cmd, file := late.suspended(t, "held/", n.with("graceSeconds", 20)) // more than an ADD takes up to there, however slow this machine is
			netlab.Eventually(t, func() error {
				if r := other.do(t, "ADD", "takes", n); r.Error != nil {
					return r.Error
				}
				return nil
			})
			if hasFoundOut {
				late.refuses(t, "ADD", "second", n, 11, "all taken")
			}
			late.MustRun(t, "rm", file)
			if err := cmd.Wait(); err == nil || !strings.Contains(fmt.Sprint(cmd.Stdout), `"code": 11`) {
				t.Errorf("it ends with %v, and prints\n%s", err, cmd.Stdout)
			}
			late.must(t, "DEL", "web", n)
			c.holds(t, n, holding{}.set(other, "takes", address("10.70.0.2")))
		})
	}
}
