package packages

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// fetchPlugins is how people install the reference plugins' release. All that it is told is the URL.
const fetchPlugins = `set -e
dir=$(mktemp -d)
cd "$dir"
curl -fsSLO "$1"
curl -fsSLO "$1.sha256"
curl -fsSLO "$1.sha512"
sha256sum -c ./*.sha256
sha512sum -c ./*.sha512
mkdir -p /opt/cni/bin
tar -C /opt/cni/bin -xzf ./*.tgz
cd /
rm -r "$dir"`

// TestArchive has a script install the reference plugins, cnibox over them, and the reference plugins over that, with another URL each time. Pods stay on their network.
func TestArchive(t *testing.T) {
	for _, kind := range []string{"", "-copies"} {
		t.Run("cni-plugins"+kind, func(t *testing.T) {
			host := netlab.NewHost(t)
			released, err := filepath.Abs(released)
			if err != nil {
				t.Fatal(err)
			}
			paths, err := filepath.Glob(released + "/cni-plugins-linux-amd64-*[0-9]" + kind + ".tgz")
			if err != nil || len(paths) != 1 {
				t.Fatalf("the archive is %q: %v; run make release ARCHES=amd64 before", paths, err)
			}
			// The reference plugins' release is made as theirs is: all files in "./", and the checksums of each archive beside it.
			host.MustRun(t, "sh", "-exc", `mkdir /run/www
				cd /run/www
				cp "$1" "$1.sha256" "$1.sha512" .
				tar -C "$2" --owner=0 --group=0 -czf cni-plugins-linux-amd64-v1.9.1.tgz .
				sha256sum cni-plugins-linux-amd64-v1.9.1.tgz >cni-plugins-linux-amd64-v1.9.1.tgz.sha256
				sha512sum cni-plugins-linux-amd64-v1.9.1.tgz >cni-plugins-linux-amd64-v1.9.1.tgz.sha512`, "sh", paths[0], netlab.Reference(t))
			host.Background(t, host.Command("busybox", "httpd", "-f", "-p", "127.0.0.1:80", "-h", "/run/www"))
			host.MustRun(t, "sh", "-c", "until curl -fsSo /dev/null http://127.0.0.1/cni-plugins-linux-amd64-v1.9.1.tgz.sha256; do sleep 0.05; done")
			fetch := func(archive string) {
				t.Helper()
				host.MustRun(t, "sh", "-c", fetchPlugins, "sh", "http://127.0.0.1/"+archive)
			}
			host.Feed(t, demo, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-demo.conflist")
			cnictl := func(pod *netlab.Pod, verbs ...string) {
				t.Helper()
				for _, verb := range verbs {
					host.MustRun(t, netlab.Cnictl(t), verb, "demo", pod.Path(), "--id", pod.Name())
				}
			}
			ours := filepath.Base(paths[0])
			old, newer, last := host.NewPod(t, "old"), host.NewPod(t, "new"), host.NewPod(t, "last")

			fetch("cni-plugins-linux-amd64-v1.9.1.tgz")
			names := strings.Fields(host.MustRun(t, "ls", "/opt/cni/bin"))
			cnictl(old, "add", "check")
			fetch(ours)
			for _, name := range names {
				if out, _ := host.Output(host.Command("sh", "-c", "/opt/cni/bin/"+name+" --version 2>&1")); !strings.Contains(out, "cnibox") {
					t.Errorf("%s is not cnibox's: %s", name, out)
				}
			}
			cnictl(old, "check")
			cnictl(newer, "add", "check")
			for _, pod := range []*netlab.Pod{old, newer} {
				if err := pod.Ping("10.9.0.1", netlab.Patience); err != nil {
					t.Error(err)
				}
			}
			cnictl(old, "del")
			cnictl(newer, "del")

			fetch("cni-plugins-linux-amd64-v1.9.1.tgz")
			if out, _ := host.Output(host.Command("sh", "-c", "/opt/cni/bin/bridge --version 2>&1")); strings.Contains(out, "cnibox") {
				t.Errorf("the bridge is not the reference plugins' again: %s", out)
			}
			cnictl(last, "add", "check", "del")
			if left := host.MustRun(t, "sh", "-c", "ls /var/lib/cni/networks/demo | grep ^10 || true; ip -o link show type veth"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}
