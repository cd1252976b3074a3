package operator

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
	"github.com/cnibox/cnibox/test/pagetest"
)

// guide is a page that a reader follows from its first line to its last, on a node of its own.
type guide struct {
	page   string
	as     []string                        // what the shell is run by, such as setpriv; nil is nothing
	before func(t *testing.T, o *operator) // what the reader has on the node already
	after  func(t *testing.T, o *operator) // what has to be right in the end
}

// guides are the pages that are followed.
var guides = []guide{
	{page: "start/first-container"},
	{page: "install/containerd"},
	{page: "install/crio"},
	{page: "install/podman"},
	{page: "install/nerdctl"},
	{page: "install/k3s", before: k3s},
	{page: "install/nomad"},
	{page: "install/buildkit"},
	{page: "install/rootless", as: []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}},
	{page: "moving/from-reference", before: reference, after: goneAsMade},
	{page: "moving/from-docker"},
	{page: "operate/after-another-cni", before: anotherCNI, after: lastingCNI},
}

// TestGuides does what each guide says: it writes the files, runs each line behind a "$ " of a console block in one shell, and expects what the
// page says is printed. `# 1` behind a command is the exit code that it has. All that the guide made has to be gone in the end.
func TestGuides(t *testing.T) {
	t.Parallel()
	followed := []string{"moving/from-humanz", "install/packages", "install/kubernetes", "install/ansible"} // TestMoveFromHumanz and test/packages do
	for _, g := range guides {
		followed = append(followed, g.page)
	}
	for _, folder := range []string{"start", "install", "moving"} {
		pages, _ := filepath.Glob("../../docs/" + folder + "/*.md")
		for _, page := range pages {
			if name := folder + "/" + strings.TrimSuffix(filepath.Base(page), ".md"); !slices.Contains(followed, name) {
				t.Errorf("nobody follows %s", page)
			}
		}
	}
	for _, g := range guides {
		t.Run(g.page, func(t *testing.T) {
			t.Parallel()
			host := netlab.NewHost(t)
			host.NewOutside(t)
			o := &operator{t, host}
			o.ownFiles()
			if g.before != nil {
				g.before(t, o)
			}
			before := host.Snapshot(t)
			o.act(pagetest.Actions(t, "../../docs/"+g.page+".md"), g.as...)
			if g.after != nil {
				g.after(t, o)
			} else if diff := before.Diff(host.Snapshot(t), "sysctl ", "file /opt/cni/bin drwx", "file /opt/cni/config drwx", "file /var/lib/cni/flannel drwx"); diff != "" {
				t.Errorf("left when all is done:\n%s", diff)
			}
		})
	}
}

// ownFiles gives the node an /etc and an /usr/local to write to, without the machine's runtimes.
func (o *operator) ownFiles() {
	o.Helper()
	o.host.MustRun(o, "sh", "-ec", `
		mkdir -p /run/own /etc/cni/net.d
		mount -t tmpfs tmpfs /run/own
		mkdir -p /run/own/cni /run/own/plugins /run/own/results
		mount --bind /etc/cni /run/own/cni
		mount --rbind /opt/cni /run/own/plugins
		mount --bind /var/lib/cni /run/own/results
		for dir in etc opt usr/local var/lib; do
			mkdir -p /run/own/$dir /run/own/scratch/$dir
			mount -t overlay overlay -o lowerdir=/$dir,upperdir=/run/own/$dir,workdir=/run/own/scratch/$dir /$dir
		done
		mkdir -p /etc/cni /opt/cni /var/lib/cni
		mount --bind /run/own/cni /etc/cni
		mount --rbind /run/own/plugins /opt/cni
		mount --bind /run/own/results /var/lib/cni
		umount -l /run/own
		rm -rf /etc/containerd /etc/crio /etc/containers /etc/nerdctl`)
}

// attachWeb attaches a container to a network of a version.
func attachWeb(t *testing.T, o *operator, version string) {
	o.host.Feed(t, `{"cniVersion": "`+version+`", "name": "pods", "plugins": [
		{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.92.0.0/24"}]]}},
		{"type": "portmap", "capabilities": {"portMappings": true}}
	]}`, "sh", "-c", "cat >/etc/cni/net.d/10-pods.conflist")
	o.must("add", "pods", o.host.NewPod(t, "web").Path(), "--id", "web", "--publish", "8080:80")
}

// reference has a container attached by the reference plugins.
func reference(t *testing.T, o *operator) {
	o.host.MustRun(t, "sh", "-ec", "mkdir -p /opt/cni/bin /etc/cni/net.d; cp "+netlab.Reference(t)+"/* /opt/cni/bin")
	attachWeb(t, o, "1.1.0")
}

// anotherCNI leaves what the installer of Calico leaves on a node with cnibox, containerd and a container.
func anotherCNI(t *testing.T, o *operator) {
	o.host.MustRun(t, "sh", "-ec", `mkdir -p /etc/cni/net.d /etc/containerd
		printf 'version = 3\n[plugins."io.containerd.cri.v1.runtime".cni]\nbin_dirs = ["/opt/cni/bin"]\nconf_dir = "/etc/cni/net.d"\n' >/etc/containerd/config.toml
		`+netlab.Cnictl(t)+` install --dir /opt/cni/bin`)
	attachWeb(t, o, "1.0.0")
	o.host.MustRun(t, "sh", "-ec", `cd `+netlab.Reference(t)+`; cp -f bandwidth host-local loopback portmap tuning /opt/cni/bin
		for name in calico calico-ipam; do printf '#!/bin/sh\n' >/opt/cni/bin/$name; chmod 755 /opt/cni/bin/$name; done`)
	o.host.Feed(t, `{"cniVersion": "0.3.1", "name": "k8s-pod-network", "plugins": [
		{"type": "calico", "ipam": {"type": "calico-ipam"}}, {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
	]}`, "sh", "-c", "cat >/etc/cni/net.d/05-calico.conflist")
}

// lastingCNI makes sure that the container has its network still, and that the plugins of the new directory take it away.
func lastingCNI(t *testing.T, o *operator) {
	o.must("check", "pods", "--id", "web", "--bin-dir", "/opt/cnibox/plugins:/opt/cni/bin")
	o.must("del", "pods", "--id", "web", "--bin-dir", "/opt/cnibox/plugins:/opt/cni/bin")
	if left := o.host.MustRun(t, "sh", "-c", "ip -o link show type veth | grep -v uplink || true; ls /var/lib/cni/networks/pods | grep ^10 || true"); left != "" {
		t.Errorf("left of the container:\n%s", left)
	}
}

// goneAsMade has the reference plugins take the container away, which leaves nothing of it.
func goneAsMade(t *testing.T, o *operator) {
	if printed := o.host.MustRun(t, "sh", "-c", "ls -A /opt/cni/bin; /opt/cni/bin/bridge 2>&1"); strings.Contains(printed, "cnibox") {
		t.Errorf("cnibox is still there:\n%s", printed)
	}
	o.must("del", "pods", "--id", "web")
	left := o.host.MustRun(t, "sh", "-c", "ip -o link show type veth; ls /var/lib/cni/networks/pods; iptables -t nat -S | grep 10.92 || true")
	if strings.Contains(left, "10.92.0.2") || strings.Contains(left, "veth") {
		t.Errorf("left of the container:\n%s", left)
	}
}

// k3s leaves what k3s has on a node: its own plugins, and flannel's lease.
func k3s(t *testing.T, o *operator) {
	o.host.MustRun(t, "sh", "-ec", `
		mkdir -p /var/lib/rancher/k3s/data/cni /run/flannel
		cp `+netlab.Debian(t)+`/* /var/lib/rancher/k3s/data/cni
		printf 'FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.0.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n' >/run/flannel/subnet.env`)
}

// probesWait has a page's probes wait: on a busy machine an answer may come later than who follows a page wants to wait.
func probesWait(script string) string {
	return strings.ReplaceAll(script, "cnictl probe ", "cnictl probe --timeout "+netlab.Patience.String()+" ")
}

// act does the actions in one shell, which may be run by another program, and compares what is printed.
func (o *operator) act(actions []pagetest.Action, as ...string) {
	o.Helper()
	words := append(slices.Clone(as), "bash", "-c", probesWait(pagetest.Script(actions)))
	shell := o.host.Command(words[0], words[1:]...)
	shell.Env = o.env()
	if shell.Dir = o.TempDir(); as != nil { // whoever it is may write there
		for dir := shell.Dir; dir != os.TempDir(); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o777); err != nil {
				o.Fatal(err)
			}
		}
	}
	var out bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &out
	if err := o.host.Run(shell); err != nil {
		o.Fatalf("%v\n%s", err, out.String())
	}
	o.Log(out.String())
	pagetest.Compare(o, actions, out.String())
}
