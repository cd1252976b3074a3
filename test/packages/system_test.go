// Package packages installs the packages of bin/release in a system of Debian, uses them, and goes back.
package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// rootVariable names the environment variable with the directory that has a Debian.
const rootVariable = "CNIBOX_DEBIAN_ROOT"

const released = "../../bin/release"

const demo = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [
	{"type": "bridge", "bridge": "demo0", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.9.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]}`

func TestMain(m *testing.M) { netlab.Main(m) }

// system is a Debian with a network of its own. What is written into it is gone with the test.
type system struct {
	*testing.T
	host *netlab.Host
	root string
}

// newSystem returns a system with the network demo. What fits some patterns of bin/release is in its directory /root.
func newSystem(t *testing.T, patterns ...string) *system {
	t.Helper()
	s := newRoot(t, rootVariable, append(patterns, netlab.Cnictl(t))...)
	s.host.Feed(t, demo, "sh", "-c", "mkdir -p /run/root/etc/cni/net.d && cat >/run/root/etc/cni/net.d/10-demo.conflist")
	return s
}

// newRoot returns a system made of the directory that an environment variable names.
func newRoot(t *testing.T, variable string, patterns ...string) *system {
	t.Helper()
	lower := os.Getenv(variable)
	if lower == "" {
		t.Fatal("there is no system to try packages in: run make test-packages")
	}
	s := &system{t, netlab.NewHost(t), filepath.Join("/run", "root")}
	s.host.OwnProcesses(t)
	s.host.MustRun(t, "sh", "-exc", `mkdir -p /run/root /run/over
		mount -t tmpfs none /run/over
		mkdir /run/over/upper /run/over/work
		mount -t overlay none -o lowerdir=`+lower+`,upperdir=/run/over/upper,workdir=/run/over/work /run/root
		cd /run/root
		mount -t proc none proc
		mount -t sysfs none sys
		mkdir -p dev/net
		[ -e dev/net/tun ] || mknod dev/net/tun c 10 200
		mount -t tmpfs none run`)
	for _, pattern := range patterns {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(released, pattern)
		}
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) != 1 {
			t.Fatalf("%s is %q: %v; run make release ARCHES=amd64 before", pattern, paths, err)
		}
		s.host.MustRun(t, "cp", "-r", paths[0], s.root+"/root/")
	}
	return s
}

func (s *system) command(script string) *exec.Cmd {
	return s.host.Command("chroot", s.root, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "sh", "-exc", script)
}

// run runs a script in the system. All of it has to succeed.
func (s *system) run(script string) string {
	s.Helper()
	out, err := s.host.Output(s.command(script))
	if err != nil {
		s.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// attach gives a new pod the network demo.
func (s *system) attach(cnictl, pod string) {
	s.Helper()
	s.run(fmt.Sprintf("ip netns add %[2]s; %[1]s add demo /run/netns/%[2]s --id %[2]s", cnictl, pod))
	s.check(cnictl, pod)
}

// check makes sure that pods are attached, and reach the host.
func (s *system) check(cnictl string, pods ...string) {
	s.Helper()
	for _, pod := range pods {
		s.run(fmt.Sprintf("%[1]s check demo /run/netns/%[2]s --id %[2]s; ip netns exec %[2]s ping -c 1 -W %[3]v 10.9.0.1", cnictl, pod, netlab.Patience.Seconds()))
	}
}

// detach takes the network from pods, which end. Then nobody has anything of the network.
func (s *system) detach(cnictl string, pods ...string) {
	s.Helper()
	for _, pod := range pods {
		s.run(fmt.Sprintf("%[1]s del demo /run/netns/%[2]s --id %[2]s; ip netns del %[2]s", cnictl, pod))
	}
	if left := s.run("ls /var/lib/cni/networks/demo | grep ^10 || true; ip -o link show type veth"); left != "" {
		s.Errorf("left after the last DEL:\n%s", left)
	}
}

// files returns what is in the system, without what plugins and package managers keep.
func (s *system) files() string {
	s.Helper()
	var kept strings.Builder
	for _, dir := range []string{"root", "run", "tmp", "var/lib/cni", "var/lib/dpkg", "var/lib/apt", "var/lib/rpm", "var/lib/pacman", "var/log", "var/cache"} {
		fmt.Fprintf(&kept, " -path /%s -prune -o", dir)
	}
	return s.run(`find / -xdev` + kept.String() + ` \( -type d -printf '%m %u %p/\n' -o -printf '%m %u %p %s %l\n' \) | sort -k 3`)
}

// wantFiles makes sure that the system has the files that it had before.
func (s *system) wantFiles(before string) {
	s.Helper()
	after := s.files()
	had := map[string]bool{}
	for line := range strings.Lines(before) {
		had[line] = true
	}
	for line := range strings.Lines(after) {
		if !had[line] {
			s.Errorf("new: %s", line)
		}
		delete(had, line)
	}
	for line := range had {
		s.Errorf("no longer there: %s", line)
	}
}

// standAlone makes sure that a container that has one of the directories and nothing else can run the plugins.
func (s *system) standAlone(dirs ...string) {
	s.Helper()
	for _, dir := range dirs {
		s.run(`mkdir -p /tmp/alone/bin /tmp/alone/proc
			mount --bind ` + dir + ` /tmp/alone/bin
			mount -t proc none /tmp/alone/proc
			for name in bridge host-local portmap; do
				echo '{"cniVersion": "1.0.0"}' | CNI_COMMAND=VERSION chroot /tmp/alone /bin/$name | grep supportedVersions
			done
			umount /tmp/alone/proc /tmp/alone/bin; rm -r /tmp/alone`)
	}
}
