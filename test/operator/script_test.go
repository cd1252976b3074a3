package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/trace"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestScripts runs what an operator could have typed: each file of testdata on a node of its own, with all plugins, the network demo and an outside.
// Besides testscript's own commands (https://pkg.go.dev/github.com/rogpeppe/go-internal/testscript) there are those of script.commands.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	pretend, err := filepath.Abs("testdata/pretend")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := &script{operator: &operator{T: t}, pretend: pretend, begun: map[string]*exec.Cmd{}, snapshots: map[string]snapshot{}, variables: map[string]string{
				"CNIBOX": netlab.Cnibox(t), "CNICTL": netlab.Cnictl(t), "PLUGINS": netlab.PluginDir, "RESULTS": resultsDir, "REFERENCE": netlab.Reference(t), "DEBIAN": netlab.Debian(t), "SOURCE": filepath.Join(pretend, "../../../.."), "UNIT": filepath.Join(pretend, "../unit"), "OUTSIDE": netlab.OutsideIPv4, "PATIENCE": fmt.Sprint(netlab.Patience.Seconds())}}
			s.move()
			testscript.RunT(one{t}, testscript.Params{Files: []string{file}, Cmds: s.commands(), Condition: s.has, RequireUniqueNames: true, Setup: func(e *testscript.Env) error {
				s.variables["WORK"] = e.WorkDir
				for name, value := range s.variables {
					e.Setenv(name, value)
				}
				return nil
			}})
		})
	}
}

// one has testscript run its only script as part of the test that it is given.
type one struct{ *testing.T }

func (o one) Run(_ string, run func(testscript.T)) { run(o) }
func (o one) Parallel()                            {}
func (o one) Verbose() bool                        { return testing.Verbose() }

type script struct {
	*operator
	pretend   string                 // the file of plugins that pretend
	pods      map[string]*netlab.Pod // outside is one, whose place is beyond the node
	begun     map[string]*exec.Cmd   // tools at the script's side
	snapshots map[string]snapshot
	etcd      *netlab.Etcd
	variables map[string]string
	remedy    []finding.Command
	code      int    // of the last cnictl, node or in
	printed   string // by it
	clinic
}

// move has the script go on on a node of its own, with an outside.
func (s *script) move() {
	o, outside := newOperatorBeside(s.T)
	s.operator, s.pods = o, map[string]*netlab.Pod{"outside": {Namespace: outside.Namespace}}
}

// has reports whether the kernel has what a script names in brackets.
func (s *script) has(name string) (bool, error) {
	feature, known := map[string]netlab.Feature{"dummy": netlab.Dummy, "ipvlan": netlab.IPVLAN, "shaping": netlab.Shaping, "vlan": netlab.VLAN, "bridge-vlan-filtering": netlab.BridgeVLANFiltering, "br_netfilter": netlab.BridgeNetfilter}[name]
	if !known {
		return false, fmt.Errorf("there is no condition %q", name)
	}
	return netlab.Has(s, feature), nil
}

// snapshot is the state of the node, or of pods.
type snapshot struct {
	pods []string
	of   []*netlab.Snapshot
}

func (s *script) snapshot(ts *testscript.TestScript, pods []string) snapshot {
	if len(pods) == 0 {
		return snapshot{nil, []*netlab.Snapshot{s.host.Snapshot(s)}}
	}
	now := snapshot{pods: pods}
	for i := range pods {
		now.of = append(now.of, s.pod(ts, pods[i:]).Snapshot(s))
	}
	return now
}

// trace traces a packet. The cause has to be of that code and owner; "": it has to be answered.
func (s *script) trace(ts *testscript.TestScript, code, whose string, args []string) {
	wait := silence
	if code == "" {
		wait = netlab.Patience
	}
	exit, printed := s.cnictl(append([]string{"trace", "--json", "--timeout", wait.String()}, args...)...)
	var r trace.Report
	if err := json.Unmarshal([]byte(printed), &r); err != nil {
		ts.Fatalf("exit code %d, %v\n%s", exit, err, printed)
	}
	r.Cause = cmp.Or(r.Cause, &trace.Cause{})
	s.code, s.printed, s.remedy = exit, r.Summary+"\n"+r.Cause.Remedy, r.Cause.Commands
	_, _ = fmt.Fprintf(ts.Stdout(), "%s: %s: %s (%s)\n%s\n", r.Outcome, r.Cause.Code, r.Summary, r.Cause.Whose, r.Cause.Remedy)
	if r.Cause.Code != code || string(r.Cause.Whose) != whose || (exit == 0) != (code == "") {
		ts.Fatalf("exit code %d, cause %q of %q, want %q of %q\n%s", exit, r.Cause.Code, r.Cause.Whose, code, whose, printed)
	}
}

// lost looks at what was lost in a test of the probe that was the last command.
func (s *script) lost(ts *testscript.TestScript, family, name, pattern string) {
	var report struct {
		Containers []struct{ HostEnd string }
		Tests      []struct {
			Name, Family, Outcome string
			Lost                  struct{ Packet, SeenAt, NotSeenAt, Reason string }
		}
	}
	ts.Check(json.Unmarshal([]byte(s.printed), &report))
	for _, test := range report.Tests {
		if test.Name != name || test.Family != family {
			continue
		}
		got := strings.NewReplacer(report.Containers[0].HostEnd+" ", "A ", report.Containers[1].HostEnd+" ", "B ").Replace(
			fmt.Sprintf("%s: %s > %s : %s", test.Lost.Packet, test.Lost.SeenAt, test.Lost.NotSeenAt, test.Lost.Reason))
		ts.Logf("%s, %s", test.Outcome, got)
		if test.Outcome != "failed" || !regexp.MustCompile("^"+pattern).MatchString(got) {
			ts.Fatalf("it does not match %s", pattern)
		}
		return
	}
	ts.Fatalf("there is no test %q", name)
}

// called returns how plugins were called that pretend, and forgets it.
func (s *script) called() string {
	calls := s.host.MustRun(s, "sh", "-c", "sed 's/ *$//' /run/calls 2>/dev/null; rm -f /run/calls")
	return strings.ReplaceAll(strings.TrimSpace(calls), "\n", ", ")
}

func (s *script) pod(ts *testscript.TestScript, args []string) *netlab.Pod {
	if len(args) == 0 || s.pods[args[0]] == nil {
		ts.Fatalf("there is no pod %q", args)
	}
	return s.pods[args[0]]
}

func (s *script) keep(ts *testscript.TestScript, pod *netlab.Pod) {
	s.pods[pod.Name()] = pod
	s.set(ts, pod.Name(), pod.Path())
}

// set sets a variable of the script and of the shells that it runs.
func (s *script) set(ts *testscript.TestScript, name, value string) {
	ts.Setenv(name, value)
	s.variables[name] = value
}

func (s *script) begin(ts *testscript.TestScript, name string, cmd *exec.Cmd) {
	printed, err := os.Create(ts.MkAbs(name))
	ts.Check(err)
	defer printed.Close()
	cmd.Stdout, cmd.Stderr, s.begun[name] = printed, printed, cmd
	ts.Check(s.host.Start(cmd))
	ts.Defer(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
}

func (s *script) run(ts *testscript.TestScript, neg bool, in *netlab.Namespace, args []string) {
	code, printed := s.shell(ts, in, args)
	s.ended(ts, neg, code, printed)
}

// command is a shell that has the script's variables.
func (s *script) command(in *netlab.Namespace, text string) *exec.Cmd {
	cmd := in.Command("sh", "-ec", text)
	cmd.Env = os.Environ()
	for name, value := range s.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func (s *script) shell(ts *testscript.TestScript, in *netlab.Namespace, args []string) (code int, text string) {
	cmd := s.command(in, strings.Join(args, " "))
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	_ = in.Run(cmd)
	if cmd.ProcessState == nil {
		ts.Fatalf("sh did not start")
	}
	return cmd.ProcessState.ExitCode(), printed.String()
}

func (s *script) ended(ts *testscript.TestScript, neg bool, code int, printed string) {
	s.code, s.printed = code, printed
	_, _ = fmt.Fprint(ts.Stdout(), printed)
	if (code == 0) == neg {
		ts.Fatalf("exit code %d", code)
	}
}
