package conformance

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unheard are standard outputs that nobody reads.
var unheard = []struct {
	name string
	open func(l *lab) (*os.File, error)
}{
	{"a pipe without a reader", (*lab).brokenPipe},
	{"a full disk", func(*lab) (*os.File, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }},
}

// brokenPipe returns the end of a pipe that can be written to, whose other end is closed.
func (l *lab) brokenPipe() (*os.File, error) {
	read, write, err := os.Pipe()
	l.must(err)
	return write, read.Close()
}

// unheard starts a plugin whose standard output is one that nobody reads.
func (l *lab) unheard(open func(*lab) (*os.File, error), verb string, c *container, config string) *exec.Cmd {
	plugin, call := l.prepare(verb, c, config)
	cmd := l.host.PluginCommand(l, plugin, call)
	file, err := open(l)
	l.must(err)
	defer file.Close()
	cmd.Stdout = file
	l.must(l.host.Start(cmd))
	return cmd
}

// answerRows are about answers that do not arrive, and input that does not end.
func answerRows() (rows []row) {
	const silent = "succeeds, or dies, without a word, and all that it made stays"
	for _, out := range unheard {
		rows = append(rows, row{name: "ADD is undone and fails when its standard output is " + out.name, differs: silent, test: func(l *lab) {
			l.warm(conf(lan))
			c := l.pod("web")
			before := l.now(c)
			cmd := l.unheard(out.open, "ADD", c, lan)
			_ = cmd.Wait()
			l.same(cmd.ProcessState.String(), "exit status 1")
			before.unchanged()
		}})
	}
	return append(rows,
		row{name: "an error that nobody reads has exit code 1", differs: "dies of a signal", test: func(l *lab) {
			c := l.pod("web")
			for _, out := range unheard {
				cmd := l.unheard(out.open, "ADD", c, with(lan, "mtu", `"big"`))
				_ = cmd.Wait()
				l.same(cmd.ProcessState.String(), "exit status 1")
			}
		}},
		row{name: "ADD whose answer nobody reads is undone in spite of signals", differs: silent, test: func(l *lab) {
			l.ipam(leases + "\n" + `test "$CNI_COMMAND" != DEL || { ` + untilInterrupted + `; echo "DEL ended" >>/run/calls; }`)
			l.onBridge()
			c := l.pod("web")
			before := l.now(c)
			cmd := l.unheard((*lab).brokenPipe, "ADD", c, other)
			l.awaitCall(cmd, "DEL")
			for _, s := range ending {
				l.must(cmd.Process.Signal(s))
			}
			l.write("/run/interrupted", "")
			_ = cmd.Wait()
			l.same(cmd.ProcessState.String(), "exit status 1")
			l.same(l.calls(), "ADD\nDEL\nDEL ended\n")
			l.clear("/run/interrupted")
			before.unchanged()
		}},
		row{name: "ADD under a limit of the size of files is undone, and the error is one document", differs: "leaves an empty lease", test: func(l *lab) {
			l.warm(conf(lan))
			c := l.pod("web")
			before := l.now(c)
			r, _ := l.under("prlimit --fsize=0 --core=0", "ADD", c, lan)
			l.refused(failure(r), "file too large")
			before.unchanged()
		}},
		row{name: "all verbs do their work though nobody reads their standard error", test: func(l *lab) {
			l.warm(conf(lan))
			l.must(l.gc(conf(lan)))
			before := l.now()
			c := l.pod("web")
			run := func(verb, config string) string {
				plugin, call := l.prepare(verb, c, config, env("CNIBOX_TRACE=1"))
				cmd := l.host.PluginCommand(l, plugin, call)
				stderr, err := l.brokenPipe()
				l.must(err)
				defer stderr.Close()
				var stdout bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, stderr
				if err := l.host.Run(cmd); err != nil {
					l.Fatalf("%s: %v, printed %s", verb, err, &stdout)
				}
				return stdout.String()
			}
			printed := run("ADD", lan)
			l.shows(printed, `"ips"`)
			run("CHECK", with(lan, "prevResult", printed))
			run("DEL", with(lan, "prevResult", printed))
			run("STATUS", with(lan, "cniVersion", `"1.1.0"`))
			run("GC", with(lan, "cniVersion", `"1.1.0"`, "cni.dev/valid-attachments", "[]"))
			c.Delete(l)
			before.unchanged()
		}},
		row{name: "a closed standard input is an error", test: func(l *lab) {
			plugin, call := l.prepare("ADD", l.pod("web"), lan)
			inner := l.host.PluginCommand(l, plugin, call)
			cmd := l.host.Command("sh", "-c", `exec "$0" <&-`, inner.Path)
			cmd.Env = inner.Env
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			_ = l.host.Run(cmd)
			l.answered(l.ended(cmd, stdout.String(), ""), 6)
		}},
		row{name: "STATUS does not wait for the end of standard input for more than some seconds", differs: "waits for ever", test: func(l *lab) {
			plugin, call := l.prepare("STATUS", nil, with(lan, "cniVersion", `"1.1.0"`))
			cmd := l.host.PluginCommand(l, plugin, call)
			text, err := io.ReadAll(cmd.Stdin)
			l.must(err)
			read, write, err := os.Pipe()
			l.must(err)
			defer read.Close()
			defer write.Close()
			var stdout bytes.Buffer
			cmd.Stdin, cmd.Stdout = read, &stdout
			l.must(l.host.Start(cmd))
			_, err = write.Write(text)
			l.must(err)
			stop := time.AfterFunc(l.patience(), func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			stop.Stop()
			l.answered(l.ended(cmd, stdout.String(), ""), 5, "standard input")
		}},
		row{name: "an error document is JSON whatever the environment holds", differs: "takes an interface name that no document can hold", test: func(l *lab) {
			for _, v := range []string{"CNI_COMMAND=\xff\n\"", "CNI_CONTAINERID=\xff\"\n\x01", "CNI_IFNAME=\xff\xfe", "CNI_NETNS=/run/\xff\n\"\\", "CNI_ARGS=\xff=\n;\""} {
				r := l.process("ADD", l.pod("web"+strings.ToLower(v[4:8])), lan, env(v))
				if r.ExitCode != 1 || r.Error == nil || r.Error.Msg == "" {
					l.Errorf("%q: want one error document, got %s", v, r)
				}
			}
		}},
	)
}

// ending are the signals that can be caught and end a process that does not.
var ending = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGXCPU}

// awaitCall waits until a plugin has called its script with a verb, which it can't once it has ended.
func (l *lab) awaitCall(plugin *exec.Cmd, verb string) {
	const never = "the script is not called"
	l.eventually(func() string {
		over := hasEnded(plugin)
		switch called := strings.Contains(l.read("/run/calls"), verb); {
		case !called && over:
			l.Error(never + ", and the plugin has ended")
		case !called:
			return never
		}
		return ""
	})
}

// hasEnded reports whether a process has ended for which nobody has waited yet.
func hasEnded(cmd *exec.Cmd) bool {
	var ended unix.Siginfo
	err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &ended, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && ended.Signo != 0
}
