// Package alone tries cni-conformance as somebody has it who has nothing else of this repository.
package alone

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// machine is one with cni-conformance in an empty directory.
type machine struct {
	*testing.T
	host     *netlab.Host
	dir, tmp string
	path     string // PATH
}

// answer is what a call printed, and its exit code.
type answer struct {
	out, err string
	code     int
}

func newMachine(t *testing.T) *machine {
	m := &machine{T: t, host: netlab.NewHost(t), dir: t.TempDir(), tmp: t.TempDir(), path: os.Getenv("PATH")}
	build := exec.Command("make", "-C", "../../..", "cni-conformance", "BIN="+m.dir)
	netlab.Build(t, build)
	return m
}

// run calls the program, which must leave the machine as it was.
func (m *machine) run(args ...string) answer {
	m.Helper()
	before := m.host.Snapshot(m)
	cmd := m.host.Command(m.dir+"/cni-conformance", args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = m.dir, []string{"PATH=" + m.path, "TMPDIR=" + m.tmp}, &stdout, &stderr
	var exit *exec.ExitError
	if err := m.host.Run(cmd); err != nil && !errors.As(err, &exit) {
		m.Fatal(err)
	}
	if diff := before.Diff(m.host.Snapshot(m)); diff != "" {
		m.Errorf("%q leaves\n%s", args, diff)
	}
	if left, err := os.ReadDir(m.tmp); err != nil || len(left) > 0 {
		m.Errorf("%q leaves %v %v", args, left, err)
	}
	return answer{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// has makes sure of an exit code, and that patterns match what was printed.
func (m *machine) has(a answer, code int, patterns ...string) {
	m.Helper()
	if a.code != code {
		m.Errorf("exit code %d, want %d\n%s\n%s", a.code, code, a.out, a.err)
	}
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(a.out + a.err) {
			m.Errorf("%s is not in\n%s\n%s", p, a.out, a.err)
		}
	}
}

func TestAlone(t *testing.T) {
	m := newMachine(t)
	debian := netlab.Debian(t)

	help := m.run("--help")
	m.has(help, 0, "--plugins", "--html")
	if strings.Contains(help.out+help.err, "test.") {
		t.Errorf("it shows the flags of package testing:\n%s", help.out)
	}
	m.has(m.run("--version"), 0, `^cni-conformance v\d+\.\d+\.\d+, \d{4} rows\n$`)
	m.has(m.run("--test.v"), 2, "unknown flag")
	m.has(m.run(), 2, "--plugins is missing")
	m.has(m.run("--plugins", debian, "more"), 2, `"more" is no flag`)
	m.has(m.run("--plugins", debian, "--format", "xml"), 2, "text, tap or junit")
	m.has(m.run("--plugins", debian, "--run", "("), 2, "missing closing")
	m.has(m.run("--plugins", debian, "--run", "no such row"), 2, "no row has such a name")
	m.has(m.run("--plugins", debian, "--html", "/nowhere/page.html"), 2, "/nowhere/page.html")
	m.has(m.run("--plugins", m.dir), 2, "none of the plugins")

	// They are where each node has a directory of its own, and somebody else's are fewer.
	m.host.Do(func() {
		cnibox, err := os.ReadFile(netlab.Cnibox(t))
		for _, name := range []string{"loopback", "bridge", "host-local", "portmap"} {
			err = errors.Join(err, os.MkdirAll(netlab.PluginDir, 0o755), os.WriteFile(netlab.PluginDir+"/"+name, cnibox, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	ours := []string{"--run", "^loopback: |^static: |^portmap: .*second ADD", "--plugins", netlab.PluginDir}
	m.has(m.run(ours...), 0, `(?m)^ +\d+ +0 +0  loopback$`, `(?m)^ +0 +0 +\d+  static$`, `skipped \d+: there is no plugin static`)
	page := filepath.Join(t.TempDir(), "page.html")
	tap := m.run(append(ours, "--format", "tap", "--html", page)...)
	rows := strings.Count(m.run("--list", "--run", ours[1]).out, "\n")
	m.has(tap, 0, fmt.Sprintf(`^TAP version 13\n1\.\.%d\n# .*\n(ok .*\n){%[1]d}$`, rows), `(?m)^ok 1 - loopback: `, `(?m)^ok \d+ - static: .* # SKIP there is no plugin static$`)
	text, err := os.ReadFile(page)
	if err != nil || !regexp.MustCompile(`(?s)^<!DOCTYPE html>.*<h2 id="loopback">.*</html>\n$`).Match(text) {
		t.Errorf("%v: the page is\n%s", err, text)
	}

	theirs := []string{"--plugins", debian, "--run", "^loopback: the result|^loopback: ADD"}
	m.has(m.run(theirs...), 1, `(?m)^FAIL loopback: the result, to the byte\n    -want`)
	m.has(m.run(append(theirs, "--format", "tap")...), 1, `(?m)^not ok \d+ - loopback: the result, to the byte\n  ---\n  message: \|\n    -want`)
	junit := m.run(append(theirs, "--format", "junit")...)
	m.has(junit, 1)
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Name string `xml:"name,attr"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal([]byte(junit.out), &suites); err != nil || suites.Tests != len(suites.Cases) || suites.Tests == 0 || suites.Failures == 0 {
		t.Errorf("junit: %+v %v", suites, err)
	}

	// A machine with few programs.
	m.path = t.TempDir()
	for _, name := range []string{"sh", "mount", "sleep", "ip", "sysctl", "readlink", "cp", "ping"} {
		program, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(program, filepath.Join(m.path, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	few := m.run("--plugins", netlab.PluginDir, "--run", "^portmap: .*second ADD|^loopback: ADD")
	m.has(few, 0, "not installed: .*nft", `skipped \d+: nft is not installed`)
	if err := os.Remove(filepath.Join(m.path, "ip")); err != nil {
		t.Fatal(err)
	}
	m.has(m.run(ours...), 2, "ip, which is not installed")
	if names, err := os.ReadDir(m.dir); err != nil || !slices.EqualFunc(names, []string{"cni-conformance"}, func(e os.DirEntry, name string) bool { return e.Name() == name }) {
		t.Errorf("beside the program there are %v %v", names, err)
	}
}
