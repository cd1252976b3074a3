package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

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
			o, outside := newOperatorBeside(t)
			s := &script{operator: o, pretend: pretend, pods: map[string]*netlab.Pod{"outside": {Namespace: outside.Namespace}}, begun: map[string]*exec.Cmd{}, snapshots: map[string]snapshot{}, variables: map[string]string{
				"CNIBOX": netlab.Cnibox(t), "CNICTL": netlab.Cnictl(t), "PLUGINS": netlab.PluginDir, "RESULTS": resultsDir, "REFERENCE": netlab.Reference(t), "DEBIAN": netlab.Debian(t), "SOURCE": filepath.Join(pretend, "../../../.."), "UNIT": filepath.Join(pretend, "../unit"), "OUTSIDE": netlab.OutsideIPv4, "PATIENCE": fmt.Sprint(netlab.Patience.Seconds())}}
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
}

// has reports whether the kernel has what a script names in brackets.
func (s *script) has(name string) (bool, error) {
	feature, known := map[string]netlab.Feature{"dummy": netlab.Dummy, "ipvlan": netlab.IPVLAN, "shaping": netlab.Shaping, "vlan": netlab.VLAN}[name]
	if !known {
		return false, fmt.Errorf("there is no condition %q", name)
	}
	return netlab.Has(s, feature), nil
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
		// pod NAME… makes pods, whose paths are $NAME from then on.
		"pod": func(ts *testscript.TestScript, _ bool, args []string) {
			for _, name := range args {
				s.keep(ts, s.host.NewPod(s, name))
			}
		},
		// attach NAME [FLAG…] makes a pod and attaches it to the network demo: its IPv4 address is $NAME_ip, its host end $NAME_end.
		"attach": func(ts *testscript.TestScript, _ bool, args []string) {
			pod, address := s.attach(args[0], args[1:]...)
			s.keep(ts, pod)
			s.set(ts, pod.Name()+"_ip", address)
			s.set(ts, pod.Name()+"_end", s.host.MustRun(s, "sh", "-c", `ip -j link show type veth | jq -j ".[] | select(.ifalias == \"cnibox demo/$0/eth0\").ifname"`, pod.Name()))
		},
		// delete NAME… takes pods away, and with them their namespaces.
		"delete": func(ts *testscript.TestScript, _ bool, args []string) {
			for i := range args {
				s.pod(ts, args[i:]).Delete(s)
			}
		},
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
		// snapshot NAME [POD…] notes the state of the node, or of pods.
		"snapshot": func(ts *testscript.TestScript, _ bool, args []string) { s.snapshots[args[0]] = s.look(ts, args[1:]) },
		// same NAME [PREFIX…] compares the state with a snapshot's, but for lines that begin so, and prints what is gone (-) and new (+).
		"same": func(ts *testscript.TestScript, neg bool, args []string) {
			before, diff := s.snapshots[args[0]], ""
			for i, after := range s.look(ts, before.pods).of {
				diff += before.of[i].Diff(after, args[1:]...)
			}
			_, _ = fmt.Fprint(ts.Stdout(), diff)
			if (diff == "") == neg {
				ts.Fatalf("changed since %s: %v", args[0], !neg)
			}
		},
		// serve POD PORT has a pod, or the node, answer by TCP at a port, or by UDP at PORT/udp.
		"serve": func(ts *testscript.TestScript, _ bool, args []string) {
			in := &s.host.Namespace
			if args[0] != "node" {
				in = &s.pod(ts, args).Namespace
			}
			if udp, is := strings.CutSuffix(args[1], "/udp"); is {
				in.ServeUDP(s, ":"+udp)
			} else {
				in.ServeTCP(s, ":"+args[1])
			}
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
		// lost FAMILY TEST PATTERN looks for a test that has failed in what probe --json printed, as "PACKET: SEEN > NOT SEEN: REASON". The host ends are A and B.
		"lost": func(ts *testscript.TestScript, _ bool, args []string) { s.lost(ts, args[0], args[1], args[2]) },
		// eventually 'SCRIPT' waits until a shell on the node succeeds.
		"eventually": func(ts *testscript.TestScript, _ bool, args []string) {
			netlab.Eventually(s, func() error {
				if code, printed := s.shell(ts, &s.host.Namespace, args); code != 0 {
					return fmt.Errorf("%s: exit code %d\n%s", args, code, printed)
				}
				return nil
			})
		},
		// begin NAME ARGUMENT… starts the tool at the script's side. What it prints is in the file $WORK/NAME.
		"begin": func(ts *testscript.TestScript, _ bool, args []string) {
			printed, err := os.Create(ts.MkAbs(args[0]))
			ts.Check(err)
			defer printed.Close()
			cmd := s.host.Command(netlab.Cnictl(s), args[1:]...)
			cmd.Env, cmd.Stdout, cmd.Stderr, s.begun[args[0]] = os.Environ(), printed, printed, cmd
			ts.Check(s.host.Start(cmd))
			ts.Defer(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		},
		// end NAME [SIGNAL] sends that a signal, and waits for its end: it is the last command then.
		"end": func(ts *testscript.TestScript, neg bool, args []string) {
			cmd := s.begun[args[0]]
			if len(args) > 1 {
				ts.Check(cmd.Process.Signal(unix.SignalNum("SIG" + args[1])))
			}
			_ = cmd.Wait()
			s.ended(ts, neg, cmd.ProcessState.ExitCode(), ts.ReadFile(args[0]))
		},
		// etcd starts etcd on the node, which has its plugin then; with ! it ends.
		"etcd": func(_ *testscript.TestScript, neg bool, _ []string) {
			if neg {
				s.etcd.Stop(s)
				return
			}
			s.host.InstallPlugins(s, "etcd")
			s.etcd = s.host.ServeEtcd(s, "127.0.0.1")
		},
		// pcapng FILE prints of which links packets are in a file, and the flags of those of TCP.
		"pcapng": func(ts *testscript.TestScript, _ bool, args []string) {
			r, err := pcapgo.NewNgReader(strings.NewReader(ts.ReadFile(args[0])), pcapgo.DefaultNgReaderOptions)
			ts.Check(err)
			link, err := r.Interface(0)
			ts.Check(err)
			printed := fmt.Sprintf("%s: %s\n", link.Name, link.Description)
			for frame, _, err := r.ReadPacketData(); err == nil; frame, _, err = r.ReadPacketData() {
				if tcp, is := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP); is {
					printed += fmt.Sprintf("to port %d: SYN %v, ACK %v\n", uint16(tcp.DstPort), tcp.SYN, tcp.ACK)
				}
			}
			s.ended(ts, false, 0, printed)
		},
	}
}

// snapshot is the state of the node, or of pods.
type snapshot struct {
	pods []string
	of   []*netlab.Snapshot
}

func (s *script) look(ts *testscript.TestScript, pods []string) snapshot {
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

func (s *script) run(ts *testscript.TestScript, neg bool, in *netlab.Namespace, args []string) {
	code, printed := s.shell(ts, in, args)
	s.ended(ts, neg, code, printed)
}

func (s *script) shell(ts *testscript.TestScript, in *netlab.Namespace, args []string) (code int, text string) {
	cmd := in.Command("sh", "-ec", strings.Join(args, " "))
	cmd.Env = os.Environ()
	for name, value := range s.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
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
