package operator

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

const nobody = 65534

// canary is in every file of a stranger's and in root's secret. Nothing that root prints or writes may have it.
const canary = "canary-in-the-mine"

// mine is a stranger's directory, with files that root must not read and programs that root must not run, and beside it files of root's that
// the stranger must not get.
type mine struct {
	*operator
	dir, own string // the stranger's, and root's
	mark     string // the programs make it
	nap      string // how long the strangers' processes sleep, which no other test's do
	events   int    // of inotify
}

// newMine makes the directories. All who may look into /tmp can look into the stranger's.
func newMine(o *operator) *mine {
	m := &mine{operator: o, dir: o.TempDir(), own: o.TempDir(), nap: fmt.Sprint(time.Now().UnixNano())}
	m.mark = m.dir + "/mark"
	conf := `{"cniVersion": "1.0.0", "name": "` + canary + `", "plugins": [{"type": "bridge"}]}`
	toml := "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '" + m.dir + "/bin'\nconf_dir = '" + m.dir + "/net.d'\n" +
		"[crio.network]\nnetwork_dir = '" + m.dir + "/net.d'\nplugin_dirs = ['" + m.dir + "/bin']\n[network]\nnetwork_backend = 'cni'\nnetwork_config_dir = '" + m.dir + "/net.d'\ncni_plugin_dirs = ['" + m.dir + "/bin']\n"
	files := map[string]string{
		"/net.d/10-x.conflist": conf, "/x.toml": toml, "/glob/1.toml": toml, "/glob/2.toml": toml, "/x.hcl": "client {\n  cni_path = \"" + m.dir + "/bin\"\n  cni_config_dir = \"" + m.dir + "/net.d\"\n}\n",
		"/x/x.json": `{"client": {"cni_path": "` + m.dir + `/bin", "cni_config_dir": "` + m.dir + `/net.d"}}`, "/deep.json": strings.Repeat("[", 1<<20-1), "/deep.hcl": "a = " + strings.Repeat("[", 1<<20-5),
		"/nerdctl.toml": "cni_path = '" + m.dir + "/bin'\ncni_netconfpath = '" + m.dir + "/net.d'\n", "/theirs": canary, "/huge.toml": "",
	}
	for _, name := range []string{"containerd", "crio", "nomad", "podman", "nerdctl"} {
		files["/"+name] = "#!/bin/sh\nsleep " + m.nap + "\n"
	}
	for path, text := range files {
		m.do(os.MkdirAll(filepath.Dir(m.dir+path), 0o755), os.WriteFile(m.dir+path, []byte(text), 0o755))
	}
	m.do(os.Truncate(m.dir+"/huge.toml", 64<<30), unix.Mkfifo(m.dir+"/pipe.toml", 0o644), os.Mkdir(m.dir+"/bin", 0o755))
	m.build(m.dir + "/bin/bridge")
	m.do(os.WriteFile(m.own+"/secret", []byte(canary), 0o600), os.Symlink(m.own+"/secret", m.dir+"/link.toml"))
	m.do(os.Chmod(filepath.Dir(m.dir), 0o755), filepath.WalkDir(m.dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	}))
	return m
}

func (m *mine) do(errs ...error) {
	m.Helper()
	if err := errors.Join(errs...); err != nil {
		m.Fatal(err)
	}
}

// build builds a program that says by its build information that it is cnibox, and makes a mark when it is run.
func (m *mine) build(to string) {
	m.Helper()
	src := m.TempDir()
	m.do(os.MkdirAll(src+"/cmd/cnibox", 0o755), os.WriteFile(src+"/go.mod", []byte("module github.com/cnibox/cnibox\n\ngo 1.24\n"), 0o600),
		os.WriteFile(src+"/cmd/cnibox/main.go", []byte("package main\n\nimport \"os\"\n\nfunc main() { os.WriteFile(\""+m.mark+"\", nil, 0o644); println(\"CNI x plugin "+canary+"\") }\n"), 0o600))
	cmd := exec.Command("go", "build", "-o", to, "./cmd/cnibox")
	cmd.Dir = src
	if text, err := cmd.CombinedOutput(); err != nil {
		m.Fatalf("%v: %s", err, text)
	}
}

// start starts a process in the node's network namespace, which ends with the test: with a program of the stranger's, and by a command that
// makes it nobody's or a container's.
func (m *mine) start(under, program string, args ...string) {
	m.Helper()
	cmd := m.host.Command("sh", "-c", under+` "$0" "$@" >/dev/null 2>&1 </dev/null & echo $!`, m.dir+"/"+program)
	cmd.Args = append(cmd.Args, args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout = os.Environ(), &out
	m.do(m.host.Run(cmd))
	pid := 0
	_, err := fmt.Sscan(out.String(), &pid)
	m.do(err)
	m.Cleanup(func() { m.host.MustRun(m, "kill", "-KILL", "--", fmt.Sprint(-pid)) })
}

const (
	asNobody    = "exec setsid setpriv --reuid 65534 --regid 65534 --clear-groups"
	asContainer = "exec setsid unshare --mount --pid --fork --kill-child"
	asUserNS    = "exec setsid setpriv --reuid 65534 --regid 65534 --clear-groups unshare --user --map-root-user"
)

// watch begins to look which files of the stranger's are opened or changed.
func (m *mine) watch() {
	m.Helper()
	var paths []string
	m.do(filepath.WalkDir(m.dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	}))
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	m.do(err)
	for _, path := range paths {
		_, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_ACCESS|unix.IN_MODIFY|unix.IN_ATTRIB|unix.IN_CREATE|unix.IN_DELETE|unix.IN_DONT_FOLLOW)
		m.do(err)
	}
	m.events = fd
	m.Cleanup(func() { _ = unix.Close(fd) })
}

// untouched fails if a file of the stranger's was opened or a program run since the last time, or if a text has what they say.
func (m *mine) untouched(what, printed string) {
	m.Helper()
	events := make([]byte, 1<<16)
	if n, _ := unix.Read(m.events, events); n > 0 {
		m.Errorf("%s: files of the stranger's were touched: %d bytes of events", what, n)
	}
	if _, err := os.Stat(m.mark); err == nil {
		m.Errorf("%s: a program of the stranger's was run", what)
		_ = os.Remove(m.mark)
	}
	if strings.Contains(printed, canary) {
		m.Errorf("%s prints what the stranger or root's secret says:\n%.2000s", what, printed)
	}
}

// TestStrangersNameNothing: root reads and runs nothing that processes of users and of containers name.
func TestStrangersNameNothing(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	m := newMine(o)
	ways := []struct {
		name, under, program string
		args                 []string
	}{
		{"nobody's containerd", asNobody, "containerd", []string{"--config", m.dir + "/x.toml"}},
		{"nobody's containerd, a glob", asNobody, "containerd", []string{"--config=" + m.dir + "/glob/*"}},
		{"nobody's containerd, a pipe", asNobody, "containerd", []string{"-c", m.dir + "/pipe.toml"}},
		{"nobody's containerd, a huge file", asNobody, "containerd", []string{"--config", m.dir + "/huge.toml"}},
		{"nobody's containerd, a link to root's file", asNobody, "containerd", []string{"--config", m.dir + "/link.toml"}},
		{"nobody's crio", asNobody, "crio", []string{"--config", m.dir + "/x.toml"}},
		{"nobody's nomad", asNobody, "nomad", []string{"agent", "-config", m.dir + "/x.hcl"}},
		{"nobody's nomad, a directory", asNobody, "nomad", []string{"agent", "-config", m.dir + "/x"}},
		{"nobody's nomad, a million brackets", asNobody, "nomad", []string{"agent", "-config", m.dir + "/deep.hcl"}},
		{"nobody's nomad, a million brackets of JSON", asNobody, "nomad", []string{"agent", "-config=" + m.dir + "/deep.json"}},
		{"nobody's podman", asNobody, "podman", []string{"--config", m.dir + "/x.toml"}},
		{"nobody's nerdctl", asNobody, "nerdctl", []string{"--config", m.dir + "/nerdctl.toml"}},
		{"root of a user namespace", asUserNS, "containerd", []string{"--config", m.dir + "/x.toml"}},
		{"a container's containerd", asContainer, "containerd", []string{"--config", m.dir + "/x.toml"}},
		{"a container's crio", asContainer, "crio", []string{"--config", m.dir + "/x.toml"}},
		{"a container's crio, a glob", asContainer, "crio", []string{"--config", m.dir + "/glob/*.toml"}},
		{"a container's nomad", asContainer, "nomad", []string{"agent", "-config=" + m.dir + "/x.hcl"}},
		{"a container's podman", asContainer, "podman", []string{"--config", "/proc/1/root" + m.dir + "/x.toml"}},
		{"a container's nerdctl", asContainer, "nerdctl", []string{"-c", m.dir + "/nerdctl.toml"}},
		{"root's own, which believes a stranger's file", "exec setsid", "containerd", []string{"--config", m.dir + "/x.toml"}},
		{"root's own, a stranger's directory", "exec setsid", "nomad", []string{"agent", "-config", m.dir + "/x"}},
	}
	for _, w := range ways {
		m.start(w.under, w.program, w.args...)
	}
	// Who sleeps has read the program.
	o.eventually(fmt.Sprintf("[ $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^%s$') -ge %d ]", m.nap, len(ways)))
	m.watch()
	calls := [][]string{
		{"doctor"}, {"doctor", "--json"}, {"doctor", "--fix"}, {"metrics"}, {"show"}, {"show", "--json"}, {"show", "--html", "-"}, {"bugreport", "-o", "/run/report.tar.gz"},
	}
	for _, runtime := range []string{"containerd", "crio", "nomad", "podman", "k3s", "nerdctl"} {
		calls = append(calls, []string{"install", "--for", runtime, "--from", "/dev/null"}, []string{"new", "bridge", "made", "--for", runtime, "--dry-run"})
	}
	for _, args := range calls {
		_, printed := o.cnictl(args...)
		m.untouched(strings.Join(args, " "), printed)
		if !t.Failed() {
			t.Logf("%-45s touched, ran and showed nothing of %d strangers", "cnictl "+strings.Join(args, " "), len(ways))
		}
	}
	m.untouched("the report", o.host.MustRun(t, "tar", "-xOzf", "/run/report.tar.gz"))
	printed := o.host.MustRun(t, "sh", "-c", fmt.Sprintf(`%s agent --metrics 127.0.0.1:9199 >/run/agent.log 2>&1 & agent=$!
		curl --silent --show-error --fail --max-time %[2]v --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:9199/metrics; kill $agent; wait $agent; cat /run/agent.log`, netlab.Cnictl(t), netlab.Patience.Seconds()))
	if !strings.Contains(printed, "cnibox_findings") {
		t.Errorf("the agent's /metrics:\n%.1000s", printed)
	}
	m.untouched("the agent's /metrics", printed)
}

// TestStrangersLeadNowhere: what root writes goes to no file that a stranger's link leads to, and into none of a stranger's.
func TestStrangersLeadNowhere(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	for _, c := range []struct {
		name  string
		plant func(m *mine) error // makes m.dir/to of the stranger's
		args  []string            // TO is that path
		fails bool
	}{
		{"metrics, a link in the place of the file", link("cnibox.prom"), []string{"metrics", "--textfile-dir", "DIR"}, true},
		{"metrics, the file by a second name", second("cnibox.prom"), []string{"metrics", "--textfile-dir", "DIR"}, false},
		{"metrics, by a link to root's directory", linkDir, []string{"metrics", "--textfile-dir", "TO"}, true},
		{"show --html, a link", link("to"), []string{"show", "--html", "TO"}, true},
		{"gc --report, a link", link("to"), []string{"gc", "--report", "TO"}, true},
		{"show --html, a link to nothing", dangling, []string{"show", "--html", "TO"}, true},
		{"show --html, the stranger's file", theirs, []string{"show", "--html", "TO"}, true},
		{"show --html, in a linked directory", linkDir, []string{"show", "--html", "TO/page.html"}, true},
		{"bugreport, in a linked directory", linkDir, []string{"bugreport", "-o", "TO/report"}, true},
		{"bugreport, a link", link("to"), []string{"bugreport", "-o", "TO"}, true},
		{"capture -w, a link", link("to"), []string{"capture", "web", "--for", "1ms", "-w", "TO"}, true},
		{"capture -w, the stranger's file", theirs, []string{"capture", "web", "--for", "1ms", "-w", "TO"}, true},
		{"capture -w, in a linked directory", linkDir, []string{"capture", "web", "--for", "1ms", "-w", "TO/x"}, true},
		{"lint --fix, a link", link("to"), []string{"lint", "--fix", "TO"}, true},
	} {
		m := &mine{operator: o, dir: t.TempDir(), own: t.TempDir()}
		m.do(os.Chown(m.dir, nobody, nobody), os.WriteFile(m.own+"/secret", []byte(wrongKey), 0o600), c.plant(m))
		before := listing(t, m.own)
		args := make([]string, len(c.args))
		for i, a := range c.args {
			args[i] = strings.NewReplacer("DIR", m.dir, "TO", m.dir+"/to").Replace(a)
		}
		code, printed := o.cnictl(args...)
		if after := listing(t, m.own); after != before {
			t.Errorf("%s: root's files were\n%sand are\n%s%s", c.name, before, after, printed)
		}
		if text, _ := os.ReadFile(m.dir + "/theirs"); c.fails == (code == 0) || len(text) > len(canary) {
			t.Errorf("%s: exit code %d, the stranger's file has %.100q\n%s", c.name, code, text, printed)
		}
		if !t.Failed() {
			t.Logf("%-45s root's files are as they were (exit code %d)", c.name, code)
		}
	}
}

// wrongKey is a network that lint --fix would correct.
const wrongKey = `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "bridge", "isGateway": true, "brigde": "x0"}]}`

func link(name string) func(m *mine) error {
	return func(m *mine) error {
		return errors.Join(os.Symlink(m.own+"/secret", m.dir+"/"+name), os.Lchown(m.dir+"/"+name, nobody, nobody))
	}
}

func second(name string) func(m *mine) error {
	return func(m *mine) error { return os.Link(m.own+"/secret", m.dir+"/"+name) }
}

func linkDir(m *mine) error {
	return errors.Join(os.Symlink(m.own, m.dir+"/to"), os.Lchown(m.dir+"/to", nobody, nobody))
}

func dangling(m *mine) error {
	return errors.Join(os.Symlink(m.own+"/none", m.dir+"/to"), os.Lchown(m.dir+"/to", nobody, nobody))
}

func theirs(m *mine) error {
	file := m.dir + "/theirs"
	return errors.Join(os.WriteFile(file, []byte(canary), 0o600), os.Chown(file, nobody, nobody), os.Rename(file, m.dir+"/to"), os.Link(m.dir+"/to", file))
}

// listing returns the files in a directory: names, modes, owners, content. How many names a file has is the stranger's doing.
func listing(t *testing.T, dir string) (list string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		var st unix.Stat_t
		text, unread := os.ReadFile(dir + "/" + e.Name())
		err = errors.Join(err, unread, unix.Stat(dir+"/"+e.Name(), &st))
		list += fmt.Sprintf("%s %o %d:%d %.200s\n", e.Name(), st.Mode, st.Uid, st.Gid, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestLintFixKeepsOwner: lint --fix writes a file that is its owner's and group's as before.
func TestLintFixKeepsOwner(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	file := t.TempDir() + "/10-x.conflist"
	if err := errors.Join(os.WriteFile(file, []byte(wrongKey), 0o640), os.Chown(file, 1, 2)); err != nil {
		t.Fatal(err)
	}
	_, printed := o.cnictl("lint", "--fix", file)
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil || st.Uid != 1 || st.Gid != 2 || st.Mode&0o7777 != 0o640 {
		t.Errorf("owner %d:%d, mode %o, %v", st.Uid, st.Gid, st.Mode&0o7777, err)
	}
	if text, _ := os.ReadFile(file); !strings.Contains(string(text), `"bridge": "x0"`) {
		t.Errorf("it was not fixed: %s\n%s", text, printed)
	}
}

// TestCaptureEscapesNames: the name of a link says nothing to the terminal, and a container's second name for a link stands for no other link.
func TestCaptureEscapesNames(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pod, _ := o.attach("web")
	o.host.MustRun(t, "ip", "link", "add", "evil\x1b[31m", "type", "bridge")
	if _, printed := o.cnictl("capture", "evil\x1b[31m", "--for", "1ms"); strings.Contains(printed, "\x1b[31m") || !strings.Contains(printed, "evil?[31m") {
		t.Errorf("capture printed %q", printed)
	}
	pod.MustRun(t, "ip", "link", "set", "eth0", "down")
	pod.MustRun(t, "ip", "link", "set", "eth0", "name", "real")
	pod.MustRun(t, "ip", "link", "add", "decoy", "type", "bridge")
	pod.MustRun(t, "ip", "link", "property", "add", "dev", "decoy", "altname", "eth0")
	if code, printed := o.cnictl("capture", "web", "--for", "1ms"); code == 0 || !strings.Contains(printed, "decoy has that as a second name") {
		t.Errorf("capture of a decoy: exit code %d\n%s", code, printed)
	}
}

// TestNamesThatBeginAsAnID: who calls a pod as another container's id begins gets neither its exec nor its repair.
func TestNamesThatBeginAsAnID(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	victim, decoy := o.host.NewPod(t, "victim"), o.host.NewPod(t, "decoy")
	o.must("add", "demo", victim.Path(), "--id", "4fa6e0f0aaaa")
	add := o.host.Command(netlab.Cnictl(t), "add", "demo", decoy.Path(), "--id", "999999999999")
	add.Env = append(os.Environ(), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=evil;K8S_POD_NAME=4fa6e0f0")
	if err := o.host.Run(add); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"exec", "4fa6e0f0", "--", "true"}, {"capture", "4fa6e0f0", "--for", "1ms"}, {"repair", "4fa6e0f0"}} {
		if code, printed := o.cnictl(args...); code == 0 || !strings.Contains(printed, "may be any of") {
			t.Errorf("%q: exit code %d\n%s", args, code, printed)
		}
	}
	o.must("exec", "4fa6e0f0aaaa", "--", "true")
	o.must("exec", "evil/4fa6e0f0", "--", "true")
}
