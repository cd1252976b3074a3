package operator

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// watchVariable has this program watch a directory in place of the tests, as containerd does.
const watchVariable = "CNIBOX_TEST_WATCH"

// watch asks to be told of changes in a directory, makes a file to say so, and waits to be killed.
func watch(dir string) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE)
	}
	if err == nil {
		err = os.WriteFile("/run/watching", nil, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for { // select would end in a deadlock that Go finds
		_ = unix.Pause()
	}
}

// startContainerd starts a program of the name containerd that watches the directory of networks, and whose end is the test's.
func startContainerd(p *clinic) {
	p.Helper()
	own, err := os.Executable()
	if err != nil {
		p.Fatal(err)
	}
	p.shell("rm -f /run/watching; cp -u " + own + " /run/doctor/bin/containerd")
	cmd := exec.Command("/run/doctor/bin/containerd")
	cmd.Env = append(os.Environ(), watchVariable+"=/etc/cni/net.d")
	if err := p.host.Start(cmd); err != nil {
		p.Fatal(err)
	}
	p.harm = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // which says that it was killed
	}
	p.Cleanup(p.harm)
	netlab.Until(p, "containerd", func() bool {
		_, err := p.host.Output(p.host.Command("test", "-e", "/run/watching"))
		return err == nil
	})
}

// faultsOfFiles are those of the files of networks.
var faultsOfFiles = []fault{
	{code: "network-file-broken", plant: func(p *clinic) { p.write("/etc/cni/net.d/05-torn.conflist", demo[:len(demo)/2]) }},
	{code: "network-name-twice", plant: shell("cd /etc/cni/net.d; cp 10-demo.conflist 20-demo.conflist")},
	{code: "conf-dir-replaced", before: startContainerd,
		plant: shell("cd /etc/cni; cp -r net.d copy; rm -r net.d; mv copy net.d"),
		says:  "systemctl restart containerd", remedy: func(p *clinic) {
			p.harm()
			startContainerd(p)
		}},
}

// TestDoctorOrder says which network a runtime takes of several.
func TestDoctorOrder(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	writeOther(p)
	p.write("/etc/crio/crio.conf.d/10-net.conf", "[crio.network]\nplugin_dirs = [\"/opt/cni/bin\"]\n")
	e := p.examine()
	f := e.find("network-order")
	if !e.Healthy() || len(f) != 1 || f[0].Summary != "CRI-O takes "+filepath.Join("/etc/cni/net.d", "10-demo.conflist")+" (network demo), whose name comes first, and not 20-other.conflist" {
		t.Errorf("found %+v", e.Findings)
	}
}
