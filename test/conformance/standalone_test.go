package conformance

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/test/netlab"
)

// standalone is set by the linker in cni-conformance (make cni-conformance), which is this package's test binary with flags and output for everybody.
var standalone string

// options are what cni-conformance is called with.
type options struct {
	plugins, format, html string
	run                   *regexp.Regexp
	list, version         bool
}

const usage = `cni-conformance says which promises of CNI plugins yours keep: it runs them as a runtime does, on nodes made of namespaces, and looks at results,
packets, addresses and files. Each promise is a row. It needs root and leaves nothing behind.

  cni-conformance --plugins /opt/cni/bin
  cni-conformance --plugins /opt/cni/bin --run '^bridge: .*VLAN'
  cni-conformance --plugins /opt/cni/bin --format junit --html rows.html >rows.xml

`

const exits = `
It exits with 0 if each row holds or is skipped, with 1 if a row fails, and with 2 if it is called wrongly or can't run the rows.
`

// parse reads the command line.
func parse(args []string) (o options, help string, err error) {
	flags := pflag.NewFlagSet("cni-conformance", pflag.ContinueOnError)
	flags.StringVar(&o.plugins, "plugins", "", "the `directory` of the plugins (required)")
	flags.StringVar(&o.format, "format", "text", "text, tap or junit")
	flags.StringVar(&o.html, "html", "", "write a page too, to this `file`")
	run := flags.String("run", "", "only rows whose names match, such as \"bridge: the result\": a regular `expression`")
	flags.BoolVar(&o.list, "list", false, "print the names of the rows, and run none")
	flags.BoolVar(&o.version, "version", false, "print the version")
	flags.SortFlags, flags.Usage = false, func() {}
	if err = flags.Parse(args); err == nil {
		o.run, err = regexp.Compile(*run)
	}
	switch {
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("%q is no flag", flags.Arg(0))
	case formats[o.format] == nil:
		err = fmt.Errorf("--format %s: it is text, tap or junit", o.format)
	case o.plugins == "" && !o.list && !o.version:
		err = errors.New("--plugins is missing: the directory of the plugins, such as /opt/cni/bin")
	}
	return o, usage + flags.FlagUsages() + exits, err
}

// selected are the rows to run.
func (o options) selected() (rows []*verdict) {
	for _, g := range groups {
		for _, all := range g.rows {
			for _, r := range all.each() {
				if o.run.MatchString(g.name + ": " + r.name) {
					rows = append(rows, &verdict{group: g, row: r, Plugin: g.name, Name: r.name, Remark: remark(g, r)})
				}
			}
		}
	}
	return rows
}

// runStandalone is the main function of cni-conformance. It runs twice, the second time in the sandbox.
func runStandalone(m *testing.M) (code int) {
	o, help, err := parse(os.Args[1:])
	var rows []*verdict
	if err == nil {
		rows = o.selected()
	}
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Print(help)
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "cni-conformance: %v\nIts flags are those of cni-conformance --help.\n", err)
		return 2
	case o.version:
		fmt.Printf("cni-conformance v%s, %d rows\n", box.Version, len(rows))
		return 0
	case o.list:
		for _, v := range rows {
			fmt.Println(v.Plugin + ": " + v.Name)
		}
		return 0
	}
	if netlab.Sandboxed() {
		err = insideSandbox(o, rows)
	} else {
		var dir string
		if dir, err = beforeSandbox(o, rows); err == nil {
			defer func() { _ = errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir)) }() // it is empty but for what is mounted on it
		}
	}
	if err == nil {
		code, err = netlab.Run(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cni-conformance:", err)
		return 2
	}
	return code
}

// beforeSandbox looks whether rows can be run, and makes the directory that the sandbox has its files on.
func beforeSandbox(o options, rows []*verdict) (dir string, err error) {
	if len(rows) == 0 {
		return "", fmt.Errorf("--run %s: no row has such a name, see --list", o.run)
	}
	if os.Geteuid() != 0 {
		return "", errors.New("it has to be root, to make network namespaces")
	}
	for _, program := range []string{"sh", "mount", "sleep", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("no row can do without %s, which is not installed", program)
		}
	}
	if there := (&suite{dir: o.plugins}).has; !slices.ContainsFunc(plugins, there) {
		return "", fmt.Errorf("--plugins %s: there is none of the plugins that have rows: %s", o.plugins, strings.Join(plugins, ", "))
	}
	if dir, err = os.MkdirTemp("", "cni-conformance-"); err != nil {
		return "", err
	}
	return dir, os.Setenv("TMPDIR", dir)
}

// insideSandbox readies what the rows are run with.
func insideSandbox(o options, rows []*verdict) error {
	r := &report{out: os.Stdout, format: formats[o.format], Rows: rows, Version: box.Version, Dir: o.plugins, Kernel: kernelRelease()}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			r.Missing = append(r.Missing, program)
		}
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(os.Stderr, "cni-conformance: not installed: %s. Rows that need them are skipped.\n", strings.Join(r.Missing, ", "))
	}
	var err error
	if o.html != "" {
		if r.html, err = os.Create(o.html); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	dir, err := bindPlugins(o.plugins)
	if err != nil {
		return err
	}
	running = &tested{suite: &suite{name: "standalone", dir: dir, limit: rowLimit}, report: r}
	if os.Stdout, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil { // package testing has its own words
		return err
	}
	return flag.CommandLine.Parse([]string{"-test.run=^TestStandalone$"})
}

// bindPlugins makes the plugins be there, to be read, where no node hides them: nodes have an /opt/cni and a /run of their own. Temporary files are
// beside them, on a file system that ends with the sandbox.
func bindPlugins(dir string) (string, error) {
	work := os.TempDir()
	bound, tmp := filepath.Join(work, "plugins"), filepath.Join(work, "tmp")
	if err := unix.Mount("tmpfs", work, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return "", fmt.Errorf("mount a file system for temporary files on %s: %w", work, err)
	}
	if err := errors.Join(os.Mkdir(bound, 0o755), os.Mkdir(tmp, 0o1777), os.Setenv("TMPDIR", tmp)); err != nil {
		return "", err
	}
	err := unix.Mount(dir, bound, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", bound, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return "", fmt.Errorf("mount %s for the nodes: %w", dir, err)
	}
	return bound, nil
}

// rowLimit is long: on a busy machine the slowest row has taken three minutes.
const rowLimit = 10 * time.Minute

// tested is what TestStandalone runs.
type tested struct {
	suite  *suite
	report *report
}

var running *tested

// TestStandalone runs the rows of cni-conformance; with `go test` there are none.
func TestStandalone(t *testing.T) {
	if running == nil {
		return
	}
	r := running.report
	r.begin()
	var workers sync.WaitGroup
	var next atomic.Int64 // rows begin in their order, which parallel tests of package testing don't
	for range parallel {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(r.Rows)); i = next.Add(1) - 1 {
				t.Run(fmt.Sprint(i), func(t *testing.T) { running.try(t, r.Rows[i]) })
			}
		})
	}
	workers.Wait()
	if err := r.end(); err != nil {
		fmt.Fprintln(os.Stderr, "cni-conformance:", err)
		t.Fail()
	}
}

func (p *tested) try(t *testing.T, v *verdict) {
	start := time.Now()
	o := p.suite.try(t, v.group, v.row)
	v.Took = time.Since(start)
	v.Failures, v.Skipped = o.failures, strings.Join(strings.Fields(cmp.Or(o.skipped, o.foreign, absent(p.suite, p.report.Missing, o.failures))), " ")
	if v.failed() {
		t.Fail()
	}
	p.report.done(v)
}

// programs are those that some rows use, beside what each machine has. It is for a machine without one that they are named here.
var programs = []string{"tc", "bridge", "nft", "iptables", "ip6tables", "iptables-nft", "iptables-legacy", "ping", "sysctl", "ethtool", "conntrack", "strace", "dnsmasq",
	"setpriv", "prlimit", "unshare", "flock", "firewalld", "dbus-daemon"}

var (
	saysNotThere = regexp.MustCompile(`not found|No such file|no such file|not installed`)
	saysNoPlugin = regexp.MustCompile(`failed to find plugin "([^"]+)"|` + netlab.PluginDir + `/([^/\s:]+): no such file`)
)

// absent returns the plugin or the program that a row failed for the lack of, in words for a user; "" if that is not why.
func absent(s *suite, missing, failures []string) string {
	text := strings.Join(failures, "\n")
	for _, match := range saysNoPlugin.FindAllStringSubmatch(text, -1) {
		if name := match[1] + match[2]; slices.Contains(plugins, name) && !s.has(name) {
			return "there is no plugin " + name
		}
	}
	if saysNotThere.MatchString(text) {
		for _, program := range missing {
			if regexp.MustCompile(`\b` + program + `\b`).MatchString(text) {
				return program + " is not installed"
			}
		}
	}
	return ""
}

// lines writes a text with something before each of its lines.
func lines(out io.Writer, before, text string) {
	for line := range strings.Lines(strings.TrimSuffix(text, "\n")) {
		fmt.Fprint(out, before, line)
	}
	fmt.Fprintln(out)
}

// TestEndlessPlugin makes sure that a plugin that never ends fails its row.
func TestEndlessPlugin(t *testing.T) {
	s := &suite{name: "endless", dir: t.TempDir(), limit: time.Second}
	for _, name := range []string{"bridge", "host-local"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("#!/bin/sh\nexec sleep infinity\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := try(t, func(j *judge) {
		l := newLab(j, s)
		l.attach(l.lan(), "web")
	})
	if why := strings.Join(o.failures, "\n"); !strings.Contains(why, "it takes longer than 1s") || !strings.Contains(why, "killed") {
		t.Errorf("the row says %q", why)
	}
}

// TestPanic makes sure that what a row did not expect at all fails it, and no other.
func TestPanic(t *testing.T) {
	o := try(t, func(*judge) { _ = object("no JSON")["ips"].(string) })
	if why := strings.Join(o.failures, "\n"); !strings.Contains(why, "panic: interface conversion") || !strings.Contains(why, "standalone_test.go:") {
		t.Errorf("the row says %q", why)
	}
}

// TestAbsent makes sure that a row that fails for the lack of a program or a plugin is known by what it says.
func TestAbsent(t *testing.T) {
	s := &suite{dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.dir, "bridge"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for says, want := range map[string]string{
		`exec: "nft": executable file not found in $PATH`:                             "nft is not installed",
		"sh: 1: nft: not found":                                                       "nft is not installed",
		"setpriv: failed to execute nft: No such file or directory":                   "nft is not installed",
		`exec: "iptables": executable file not found in $PATH`:                        "", // it is installed: a plugin has another PATH
		"nft lists another ruleset":                                                   "",
		`failed to find plugin "tap" in path [/opt/cni/bin]`:                          "there is no plugin tap",
		"run plugin tap: fork/exec /opt/cni/bin/tap: no such file or directory":       "there is no plugin tap",
		"run plugin bridge: fork/exec /opt/cni/bin/bridge: no such file or directory": "",
		`failed to find plugin "nosuch" in path [/opt/cni/bin]`:                       "",
		"not as wanted": "",
	} {
		if why := absent(s, []string{"nft"}, []string{says}); why != want {
			t.Errorf("%s: got %q, want %q", says, why, want)
		}
	}
}
