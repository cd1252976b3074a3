package operator

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

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
		"snapshot": func(ts *testscript.TestScript, _ bool, args []string) {
			s.snapshots[args[0]] = s.snapshot(ts, args[1:])
		},
		// same NAME [PREFIX…] compares the state with a snapshot's, but for lines that begin so, and prints what is gone (-) and new (+).
		"same": func(ts *testscript.TestScript, neg bool, args []string) {
			before, diff := s.snapshots[args[0]], ""
			for i, after := range s.snapshot(ts, before.pods).of {
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
			cmd := s.host.Command(netlab.Cnictl(s), args[1:]...)
			cmd.Env = os.Environ()
			s.begin(ts, args[0], cmd)
		},
		// start NAME 'SCRIPT' has a shell become another program at the script's side, and waits until it is that.
		"start": func(ts *testscript.TestScript, _ bool, args []string) {
			cmd := s.command(&s.host.Namespace, "exec "+args[1])
			s.begin(ts, args[0], cmd)
			netlab.Until(s, "a shell that becomes "+args[1], func() bool {
				// Empty while a process becomes another one, whose name is set before this is.
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
				return len(line) > 0 && string(line) != strings.Join(cmd.Args, "\x00")+"\x00"
			})
		},
		// end NAME [SIGNAL] sends that a signal, and waits for its end: it is the last command then.
		"end": func(ts *testscript.TestScript, neg bool, args []string) {
			cmd := s.begun[args[0]]
			if cmd == nil {
				ts.Fatalf("nothing called %s was begun", args[0])
			}
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
