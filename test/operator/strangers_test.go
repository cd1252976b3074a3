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
