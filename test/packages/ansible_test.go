package packages

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// ansible is a system that Ansible works on, with what docs/install/ansible.md tells people to write.
type ansible struct {
	*system
	url string // of the release
}

func newAnsible(t *testing.T) *ansible {
	t.Helper()
	a := &ansible{newSystem(t), "http://127.0.0.1"}
	page, err := os.ReadFile("../../docs/install/ansible.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)\nWrite this to `([^`]+)`:\n\n```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		a.host.Feed(t, m[2], "sh", "-c", "cat >"+a.root+"/root/"+filepath.Base(m[1]))
	}
	www, err := filepath.Abs(released)
	if err != nil {
		t.Fatal(err)
	}
	a.host.Background(t, a.host.Command("busybox", "httpd", "-f", "-p", "127.0.0.1:80", "-h", www))
	a.host.MustRun(t, "sh", "-c", "mkdir -p "+a.root+"/dev/shm; mount -t tmpfs none "+a.root+"/dev/shm; until curl -fsSo /dev/null http://127.0.0.1/$0; do :; done",
		"cni-plugins-linux-amd64-v0.1.0.tgz.sha256")
	return a
}

// play runs a playbook, and returns how many tasks have changed something. None may fail.
func (a *ansible) play(args string) int {
	a.Helper()
	said := a.run("cd /root; LC_ALL=C.UTF-8 ansible-playbook -i localhost, -c local -e cnibox_url=" + a.url + " " + args)
	recap := regexp.MustCompile(`ok=\d+ +changed=(\d+) +unreachable=0 +failed=0`).FindStringSubmatch(said)
	if recap == nil {
		a.Fatalf("ansible-playbook %s:\n%s", args, said)
	}
	changed, _ := strconv.Atoi(recap[1])
	return changed
}

// settles makes sure that a playbook changes nothing in check mode, something when it is run, and nothing when it is run again.
func (a *ansible) settles(playbook string) {
	a.Helper()
	a.run("cd /root; ansible-playbook --syntax-check -i localhost, " + playbook)
	before := a.files()
	a.play("--check " + playbook)
	a.wantFiles(before)
	if n := a.play(playbook); n == 0 {
		a.Errorf("%s has changed nothing", playbook)
	}
	after := a.files()
	for _, again := range []string{playbook, "--check " + playbook} {
		if n := a.play(again); n != 0 {
			a.Errorf("%s, once more, has changed %d things", again, n)
		}
	}
	a.wantFiles(after)
}

// TestAnsibleArchive installs the archive of a release by the page's play, beside the distribution's plugins.
func TestAnsibleArchive(t *testing.T) {
	a := newAnsible(t)
	a.settles("cnibox.yml")
	a.attach("/usr/local/bin/cnictl --bin-dir /opt/cni/bin", "web")
	a.detach("/usr/local/bin/cnictl --bin-dir /opt/cni/bin", "web")
}

// TestAnsiblePackages installs the packages by the page's play, in the place of the distribution's plugins, under a pod that runs.
func TestAnsiblePackages(t *testing.T) {
	a := newAnsible(t)
	a.attach("/root/cnictl --bin-dir /usr/lib/cni", "old")
	a.settles("packages.yml")
	a.check("cnictl --bin-dir /usr/lib/cni", "old")
	a.attach("cnictl --bin-dir /opt/cni/bin", "new")
	a.detach("cnictl --bin-dir /opt/cni/bin", "old", "new")
}

// kubespray does with an archive what kubespray's roles do: it is fetched with its sum, and unpacked with an owner and a mode.
const kubespray = `- hosts: all
  vars_files: [cni.yml]
  vars: {image_arch: amd64}
  tasks:
    - ansible.builtin.get_url:
        url: "{{ cni_download_url | regex_replace('^.*/', cnibox_url + '/') }}"
        dest: /tmp/cni-plugins-linux-amd64-1.9.1.tgz
        checksum: "{{ cni_binary_checksum }}"
        mode: "0755"
    - ansible.builtin.file: {path: /opt/cni/bin, state: directory, mode: "0755", owner: "{{ cni_bin_owner }}", recurse: true}
    - ansible.builtin.unarchive: {src: /tmp/cni-plugins-linux-amd64-1.9.1.tgz, dest: /opt/cni/bin, mode: "0755", owner: "{{ cni_bin_owner }}", remote_src: true}
`

// TestKubespray has the page's variables put cnibox in the place of the reference plugins, under a pod that runs.
func TestKubespray(t *testing.T) {
	a := newAnsible(t)
	a.host.MustRun(t, "sh", "-exc", "mkdir -p "+a.root+"/opt/cni/bin; cp "+netlab.Reference(t)+"/* "+a.root+"/opt/cni/bin")
	a.attach("/root/cnictl --bin-dir /opt/cni/bin", "old")
	sum, err := os.ReadFile(released + "/cni-plugins-linux-amd64-v0.1.0.tgz.sha256")
	if err != nil {
		t.Fatal(err)
	}
	a.run("sed -i s/SHA256-OF-AMD64/" + strings.Fields(string(sum))[0] + "/ /root/cni.yml")
	a.host.Feed(t, kubespray, "sh", "-c", "cat >"+a.root+"/root/kubespray.yml")
	if n := a.play("kubespray.yml"); n == 0 {
		t.Error("nothing has changed")
	}
	if n := a.play("kubespray.yml"); n != 0 {
		t.Errorf("once more, %d things have changed", n)
	}
	if says := a.run("/opt/cni/bin/bridge --version 2>&1; stat -c %U /opt/cni/bin"); !strings.Contains(says, "cnibox") || !strings.HasSuffix(says, "root\n") {
		t.Errorf("the bridge of /opt/cni/bin, and its owner: %s", says)
	}
	a.check("/root/cnictl --bin-dir /opt/cni/bin", "old")
	a.attach("/root/cnictl --bin-dir /opt/cni/bin", "new")
	a.detach("/root/cnictl --bin-dir /opt/cni/bin", "old", "new")
}
