package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/trace"
	"github.com/cnibox/cnibox/test/firewalldtest"
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
			s := &script{operator: &operator{T: t}, pretend: pretend, snapshots: map[string]*netlab.Snapshot{}, started: map[string]func(){}, variables: map[string]string{
				"CNIBOX": netlab.Cnibox(t), "CNICTL": netlab.Cnictl(t), "PLUGINS": netlab.PluginDir, "RESULTS": resultsDir, "REFERENCE": netlab.Reference(t), "DEBIAN": netlab.Debian(t), "PATIENCE": fmt.Sprint(netlab.Patience.Seconds())}}
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
	snapshots map[string]*netlab.Snapshot
	variables map[string]string
	remedy    []finding.Command
	code      int               // of the last cnictl, node or in
	printed   string            // by it
	started   map[string]func() // ends it
	clinic
}

// move has the script go on on a node of its own, with an outside.
func (s *script) move() {
	o, outside := newOperatorBeside(s.T)
	s.operator, s.pods = o, map[string]*netlab.Pod{"outside": {Namespace: outside.Namespace}}
}

type command = func(ts *testscript.TestScript, neg bool, args []string)

// commands are those of scripts. What cnictl and node print, on both channels, is the script's stdout.
func (s *script) commands() map[string]command {
	return map[string]command{
		// cnictl ARGUMENT… runs the tool on the node.
		"cnictl": func(ts *testscript.TestScript, neg bool, args []string) {
			code, printed := s.cnictl(args...)
			s.ended(ts, neg, code, printed)
		},
		// exits CODE TEXT ARGUMENT… runs the tool, which has to end with the code, and to say the text.
		"exits": func(ts *testscript.TestScript, _ bool, args []string) {
			if len(args) < 3 {
				ts.Fatalf("usage: exits CODE TEXT ARGUMENT…")
			}
			code, printed := s.cnictl(args[2:]...)
			s.ended(ts, code != 0, code, printed)
			if strconv.Itoa(code) != args[0] || !strings.Contains(printed, args[1]) {
				ts.Fatalf("exit code %d, want %s with %q", code, args[0], args[1])
			}
		},
		// says TEXT… looks for texts in what the last command printed, where any number of blanks is one.
		"says": func(ts *testscript.TestScript, neg bool, args []string) {
			printed := strings.Join(strings.Fields(s.printed), " ")
			for _, text := range args {
				if strings.Contains(printed, text) == neg {
					ts.Fatalf("it says %q: %v", text, neg)
				}
			}
		},
		// node 'SCRIPT' runs a shell on the node, which has the script's variables.
		"node": func(ts *testscript.TestScript, neg bool, args []string) { s.run(ts, neg, &s.host.Namespace, args) },
		// in POD 'SCRIPT' runs a shell in a pod.
		"in": func(ts *testscript.TestScript, neg bool, args []string) {
			s.run(ts, neg, &s.pod(ts, args).Namespace, args[1:])
		},
		// code NUMBER is what the last command has to have ended with.
		"code": func(ts *testscript.TestScript, _ bool, args []string) {
			if len(args) != 1 || args[0] != strconv.Itoa(s.code) {
				ts.Fatalf("exit code %d", s.code)
			}
		},
		// pod NAME makes a pod, whose path is $NAME from then on.
		"pod": func(ts *testscript.TestScript, _ bool, args []string) {
			s.keep(ts, s.host.NewPod(s, args[0]))
		},
		// attach NAME [FLAG…] makes a pod and attaches it to the network demo: its IPv4 address is $NAME_ip.
		"attach": func(ts *testscript.TestScript, _ bool, args []string) {
			pod, address := s.attach(args[0], args[1:]...)
			s.keep(ts, pod)
			s.set(ts, pod.Name()+"_ip", address)
		},
		// delete NAME takes a pod away, and with it its namespace.
		"delete": func(ts *testscript.TestScript, _ bool, args []string) { s.pod(ts, args).Delete(s) },
		// gone NAME… attaches pods to the network demo, takes them away, and makes all attachments some minutes old.
		"gone": func(_ *testscript.TestScript, _ bool, args []string) {
			for _, name := range args {
				pod := s.host.NewPod(s, name)
				s.must("add", "demo", pod.Path(), "--id", name)
				pod.Delete(s)
			}
			s.age()
			s.called()
		},
		// pretend has the network demo be of two plugins that only note their calls: testdata/pretend.
		"pretend": func(ts *testscript.TestScript, _ bool, _ []string) {
			s.host.MustRun(s, "sh", "-ec", `sed "/^{/,\$d" "$0" >$1/fake; chmod +x $1/fake; cp $1/fake $1/second; sed -n "/^{/,\$p" "$0" >/etc/cni/net.d/10-demo.conflist`,
				s.pretend, netlab.PluginDir)
		},
		// called CALLS compares how these plugins were called since the last time that this was asked.
		"called": func(ts *testscript.TestScript, _ bool, args []string) {
			if calls, want := s.called(), strings.Join(args, ", "); calls != want {
				ts.Fatalf("called %q, want %q", calls, want)
			}
		},
		// age makes all attachments some minutes old.
		"age": func(*testscript.TestScript, bool, []string) { s.age() },
		// snapshot NAME notes the state of the node.
		"snapshot": func(_ *testscript.TestScript, _ bool, args []string) { s.snapshots[args[0]] = s.host.Snapshot(s) },
		// same NAME [PREFIX…] compares the state with a snapshot's, but for lines that begin so.
		"same": func(ts *testscript.TestScript, neg bool, args []string) {
			if diff := s.snapshots[args[0]].Diff(s.host.Snapshot(s), args[1:]...); (diff == "") == neg {
				ts.Fatalf("since %s there is changed:\n%s", args[0], diff)
			}
		},
		// serve POD PORT has a pod, or the node, answer by TCP at a port.
		"serve": func(ts *testscript.TestScript, _ bool, args []string) {
			in := &s.host.Namespace
			if args[0] != "node" {
				in = &s.pod(ts, args).Namespace
			}
			in.ServeTCP(s, ":"+args[1])
		},
		// listen POD PORT has a pod take what comes by UDP at a port, and answer nothing.
		"listen": func(ts *testscript.TestScript, _ bool, args []string) {
			var conn net.PacketConn
			var err error
			s.pod(ts, args).Do(func() { conn, err = net.ListenPacket("udp", ":"+args[1]) })
			ts.Check(err)
			ts.Defer(func() { _ = conn.Close() })
		},
		// traced CODE WHOSE ARGUMENT… traces a packet, which has to be lost for a cause of that code and owner.
		"traced": func(ts *testscript.TestScript, _ bool, args []string) { s.trace(ts, args[0], args[1], args[2:]) },
		// mended ARGUMENT… runs the commands of the last cause, and traces a packet, which has to be answered.
		"mended": func(ts *testscript.TestScript, _ bool, args []string) {
			for _, c := range s.remedy {
				if c[0] == "cnictl" {
					s.must(c[1:]...)
				} else {
					s.host.MustRun(s, c[0], c[1:]...)
				}
			}
			s.trace(ts, "", "", args)
		},
		// reaches ADDRESS sends it a ping from the node.
		"reaches": func(ts *testscript.TestScript, neg bool, args []string) {
			wait := netlab.Patience
			if neg {
				wait = silence
			}
			if err := s.host.Ping(args[0], wait); (err == nil) == neg {
				ts.Fatalf("%v", err)
			}
		},
		// eventually 'SCRIPT' runs a shell on the node until it ends well.
		"eventually": func(ts *testscript.TestScript, _ bool, args []string) {
			netlab.Until(s, strings.Join(args, " "), func() bool { _, err := s.shell(args[0]); return err == nil })
		},
		// start NAME 'SCRIPT' has a shell become a program of the node's that runs until the script's end, or until end NAME.
		"start": s.start,
		"end":   func(_ *testscript.TestScript, _ bool, args []string) { s.started[args[0]]() },
		// fresh [FILE] goes on on a new node, whose network demo is in a file, and which has nothing of what this machine says to runtimes and managers of links.
		"fresh": s.fresh,
		// firewalld starts that, and waits until it answers.
		"firewalld": func(*testscript.TestScript, bool, []string) { firewalldtest.Start(s, s.host, "nftables") },
		// works POD ADDRESS[:PORT], works closed POD ADDRESS:PORT and works add say what works on a healthy node and not with a fault; works: nothing does.
		"works": s.promise,
		// healthy [ARGUMENT…] has doctor find nothing that is wrong, and what works has to.
		"healthy": func(ts *testscript.TestScript, _ bool, args []string) { s.wantHealthy(ts, args...) },
		// finds CODE [ARGUMENT…] has doctor find that alone, and what works must not.
		"finds": func(ts *testscript.TestScript, _ bool, args []string) { s.wantFound(ts, args[0], args[1:]...) },
		// obey does what doctor has said that it would do, or prints. Then the node is healthy.
		"obey": func(ts *testscript.TestScript, _ bool, _ []string) { s.obey(ts) },
		// fault CODE SCRIPT [SAYS REMEDY] has a shell do harm to a healthy node: doctor finds that alone, and what it says ends it. If that is for a person
		// to do, doctor says a text of that, and a shell does it.
		"fault": s.fault,
	}
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

func (s *script) start(ts *testscript.TestScript, _ bool, args []string) {
	cmd := s.command(&s.host.Namespace, "exec "+args[1])
	ts.Check(s.host.Start(cmd))
	s.started[args[0]] = sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	s.Cleanup(s.started[args[0]])
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

func (s *script) run(ts *testscript.TestScript, neg bool, in *netlab.Namespace, args []string) {
	cmd := s.command(in, strings.Join(args, " "))
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	_ = in.Run(cmd)
	if cmd.ProcessState == nil {
		ts.Fatalf("sh did not start")
	}
	s.ended(ts, neg, cmd.ProcessState.ExitCode(), printed.String())
}

func (s *script) ended(ts *testscript.TestScript, neg bool, code int, printed string) {
	s.code, s.printed = code, printed
	_, _ = fmt.Fprint(ts.Stdout(), printed)
	if (code == 0) == neg {
		ts.Fatalf("exit code %d", code)
	}
}
