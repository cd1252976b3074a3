package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/test/netlab"
)

// examined is what doctor prints with --json.
type examined struct {
	doctor.Report
	Fixed []doctor.Fixed
}

// codes are those of errors and warnings that a person is to read, each once.
func (e examined) codes() (list []string) {
	for _, f := range e.Findings {
		if f.Severity != finding.Info && f.IsShown() && !slices.Contains(list, f.Code) {
			list = append(list, f.Code)
		}
	}
	return list
}

// path finds cnictl, and what is in the place of a program that this machine lacks, or that is not to run here.
func (o *operator) path() string {
	return "/run/own/bin:" + filepath.Dir(netlab.Cnictl(o)) + ":" + os.Getenv("PATH")
}

// examine runs doctor, which can look everywhere, and ends as it has to.
func (o *operator) examine(args ...string) (e examined) {
	o.Helper()
	cmd := o.host.Command(netlab.Cnictl(o), append([]string{"doctor", "--json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "PATH="+o.path()), &out, &errs
	err := o.host.Run(cmd)
	if wrong := json.Unmarshal(out.Bytes(), &e); wrong != nil {
		o.Fatalf("doctor: %v\n%s%s", err, &out, &errs)
	}
	if healthy := cmd.ProcessState.ExitCode() == 0; healthy != e.Healthy() || len(e.CouldNotLook) > 0 {
		o.Errorf("doctor: %v, found %v, and could not look at %+v", err, e.codes(), e.CouldNotLook)
	}
	return e
}

// clinic is what scripts about doctor know of their node.
type clinic struct {
	works    func(wait time.Duration) error // nil: nothing that a fault would end
	findings []doctor.Finding               // those of the code that doctor had to find last
}

// isolate takes from the node what this machine says to runtimes, systemd and managers of links.
func (s *script) isolate() {
	s.variables["PATH"] = s.path()
	s.host.MustRun(s, "sh", "-ec", `mkdir -p /run/own/etc /run/own/work /run/own/cni /run/own/bin
		mount --bind /etc/cni /run/own/cni
		mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/own/etc,workdir=/run/own/work /etc
		mkdir -p /etc/cni; mount --bind /run/own/cni /etc/cni
		rm -rf /etc/containerd /etc/crio /etc/containers /etc/nerdctl /etc/NetworkManager /etc/systemd/network /etc/systemd/system/*dhcp*
		mkdir -p /etc/systemd/network /etc/NetworkManager/conf.d /etc/sysctl.d
		for dir in /usr/lib/systemd/network /usr/lib/systemd/system /usr/lib/NetworkManager; do
			[ ! -d $dir ] || mount -t tmpfs none $dir
		done`)
}

func (s *script) fresh(ts *testscript.TestScript, _ bool, args []string) {
	if s.variables["PATH"] != "" {
		s.move()
	}
	s.isolate()
	s.clinic = clinic{}
	for _, file := range args {
		s.mustShell(ts, "cp $WORK/"+file+" /etc/cni/net.d/10-demo.conflist")
	}
}

func (s *script) promise(ts *testscript.TestScript, _ bool, args []string) {
	if s.works = nil; len(args) == 0 {
		return
	}
	closed := args[0] == "closed"
	if closed {
		args = args[1:]
	}
	s.works = func(wait time.Duration) (err error) {
		switch {
		case args[0] == "add":
			pod := s.host.NewPod(s, fmt.Sprint("new", time.Now().UnixNano()))
			if code, printed := s.cnictl("add", "demo", pod.Path()); code != 0 {
				return fmt.Errorf("add: %s", printed)
			}
			s.must("del", "demo", pod.Path())
		case closed:
			if _, err := s.pod(ts, args).DialTCP(args[1], silence); err == nil {
				return fmt.Errorf("%s is open", args[1])
			}
		case strings.Contains(args[1], ":"):
			_, err = s.pod(ts, args).DialTCP(args[1], wait)
		default:
			err = s.pod(ts, args).Ping(args[1], wait)
		}
		return err
	}
}

func (s *script) wantHealthy(ts *testscript.TestScript, args ...string) {
	s.look(ts, args, nil)
	if s.works != nil {
		ts.Check(s.works(netlab.Patience))
	}
}

func (s *script) wantFound(ts *testscript.TestScript, code string, args ...string) {
	if s.works != nil && s.works(silence) == nil {
		ts.Fatalf("all works")
	}
	s.look(ts, args, []string{code})
	s.findings = slices.DeleteFunc(s.findings, func(f doctor.Finding) bool { return f.Code != code })
}

// look has doctor look, which has to find these codes alone. It looks again where names were not answered: on a busy machine a second is not enough for
// that. What it finds last is printed.
func (s *script) look(ts *testscript.TestScript, args, codes []string) {
	var found []string
	isRight := func() bool { return slices.Equal(found, codes) }
	_ = netlab.Await(func() error {
		e := s.examine(args...)
		s.findings, found = e.Findings, e.codes()
		isLate := slices.ContainsFunc(found, func(code string) bool { return strings.HasPrefix(code, "names-") })
		if isLate && !isRight() {
			return errors.New("names were not answered")
		}
		return nil
	})
	s.printed = ""
	for _, f := range s.findings {
		s.printed += f.Code + ": " + f.Summary + "\n" + f.Remedy + "\n"
	}
	_, _ = fmt.Fprint(ts.Stdout(), s.printed)
	if !isRight() {
		ts.Fatalf("found %v, want %v alone", found, codes)
	}
}

func (s *script) obey(ts *testscript.TestScript) {
	if s.findings[0].Fixable {
		for _, done := range s.examine("--fix").Fixed {
			if done.Error != "" || done.Code != s.findings[0].Code {
				ts.Fatalf("doctor --fix: %+v", done)
			}
		}
	} else {
		for _, f := range s.findings {
			s.mustShell(ts, f.Remedy)
		}
	}
	s.wantHealthy(ts)
}

func (s *script) fault(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 && len(args) != 4 {
		ts.Fatalf("usage: fault CODE SCRIPT [SAYS REMEDY]")
	}
	s.wantHealthy(ts)
	s.mustShell(ts, args[1])
	s.wantFound(ts, args[0])
	if len(args) == 2 {
		s.obey(ts)
		return
	}
	if !strings.Contains(s.findings[0].Remedy, args[2]) {
		ts.Fatalf("the remedy does not say %q", args[2])
	}
	s.mustShell(ts, args[3])
	s.wantHealthy(ts)
}

// onNode has a shell with the script's variables run.
func (s *script) onNode(text string) (string, error) {
	return s.host.Output(s.command(&s.host.Namespace, text))
}

func (s *script) mustShell(ts *testscript.TestScript, text string) {
	if out, err := s.onNode(text); err != nil {
		ts.Fatalf("%s: %v\n%s", text, err, out)
	}
}
