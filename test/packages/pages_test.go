package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/pagetest"
)

// bareVariable names the environment variable with the directory that has a Debian of the fewest packages. It has files of other packages, to be installed
// without a network.
const bareVariable = "CNIBOX_BARE_ROOT"

// TestPages does what the first pages say, from their first block to their last, on a Debian that has nothing else: with the packages of cnibox, and what a
// page is about.
func TestPages(t *testing.T) {
	for page, prepare := range map[string]func(*system){
		"start/first-container": func(s *system) { s.run("rm -rf /etc/cni") },
		"install/containerd":    (*system).containerd,
		"install/podman":        (*system).podman,
	} {
		t.Run(page, func(t *testing.T) {
			s := newRoot(t, bareVariable, "cnibox_*_amd64.deb", "cnictl_*_amd64.deb")
			s.host.NewOutside(t) // probe tries a published port from there
			s.run(`echo 'APT::Get::Assume-Yes "true"; APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/test`)
			prepare(s)
			there := func() string {
				return s.host.MustRun(t, "sh", "-c", "ip -o link; ip route; nft list ruleset; find /run/root/opt /run/root/etc -path '*cni*' -type f")
			}
			before := there()
			s.follow(page)
			if after := there(); after != before {
				t.Errorf("before there was\n%s\nwhen all is done there is\n%s", before, after)
			}
		})
	}
}

// follow does what a page says, in the directory that has the packages.
func (s *system) follow(page string) {
	s.Helper()
	actions := pagetest.AllActions(s, "../../docs/"+page+".md", "Debian, Ubuntu")
	cmd := s.command("")
	cmd.Args = append(cmd.Args[:len(cmd.Args)-3], "bash", "-c", "exec 2>&1; cd /root\n"+pagetest.Script(actions))
	printed, err := s.host.Output(cmd)
	s.Log(printed)
	if err != nil {
		s.Fatal(err)
	}
	pagetest.Compare(s, actions, printed)
}

// install installs what a page takes for granted: its runtime, and cnictl.
func (s *system) install(packages string) {
	s.Helper()
	s.run("apt-get install busybox iproute2 curl " + packages + "; apt-get install /root/*.deb; rm -rf /etc/cni/net.d/*; mkdir -p /opt/cni/bin /etc/cni/net.d")
	s.cgroups()
	s.host.MustRun(s, "sh", "-ec", fmt.Sprintf(`cd %s; mkdir -p var/lib/containerd var/lib/containers
		for dir in /srv var/lib/containerd var/lib/containers; do mount -t tmpfs none $dir; done # an overlay can't lie on another
		mount --bind /srv srv
		%s`, s.root, strings.ReplaceAll(makeWebImage, webImage, "docker.io/library/busybox:latest")))
}

func (s *system) containerd() {
	s.install("containerd runc")
	s.host.Background(s, s.command("exec containerd >/srv/containerd 2>&1"))
	s.run("until ctr version >/dev/null 2>&1; do sleep 0.05; done; ctr image import /srv/web.tar")
}

func (s *system) podman() {
	s.install("podman runc")
	s.run(`mkdir -p /etc/containers/containers.conf.d
		printf '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n[containers]\napparmor_profile = "unconfined"\noom_score_adj = 0\n' \
			>/etc/containers/containers.conf.d/10-machine.conf
		podman load --quiet --input /srv/web.tar`)
}

// cgroups gives the system control groups of its own, which end with it.
func (s *system) cgroups() {
	s.Helper()
	name := fmt.Sprintf("cnibox-packages-%d", os.Getpid())
	root := filepath.Join(s.root, "sys/fs/cgroup")
	s.host.MustRun(s, "sh", "-exc", `
		hierarchies=$(awk '$3 ~ /^cgroup/ {print $2}' /proc/self/mounts)
		[ "$hierarchies" = /sys/fs/cgroup ] || mount -t tmpfs none `+root+`
		for from in $hierarchies; do
			mkdir $from/`+name+` `+root+`${from#/sys/fs/cgroup} -p
			for file in cpuset.cpus cpuset.mems; do
				[ ! -e $from/`+name+`/$file ] || cat $from/$file >$from/`+name+`/$file || true
			done
			mount --bind $from/`+name+` `+root+`${from#/sys/fs/cgroup}
		done`)
	s.Cleanup(func() {
		s.host.MustRun(s, "umount", "-R", root)
		removeCgroups(s, s.host, name)
	})
}
