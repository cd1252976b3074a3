package packages

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

const (
	criSocket = "/run/containerd/containerd.sock"
	webPage   = "hello from the pod\n"

	webRepository = "docker.io/cnibox/web"
	webImage      = webRepository + ":1"
)

// containerdConfig has containerd write into /srv, which is the node's own, and needs nothing that a virtual machine may not offer.
const containerdConfig = `version = 2
root = "/srv/containerd"
state = "/run/containerd"
[grpc]
  address = "` + criSocket + `"
[plugins."io.containerd.internal.v1.opt"]
  path = "/srv/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + webImage + `"
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
`

// makeWebImage makes an image of busybox with a page, in a file that containerd imports. It serves as the sandbox's image, too.
const makeWebImage = `mkdir -p /srv/web/root/bin /srv/web/root/www /srv/web/root/tmp
cd /srv/web
cp /bin/busybox root/bin
for applet in sh sleep httpd wget ip; do ln -s busybox root/bin/$applet; done
printf '` + webPage + `' >root/www/index.html
tar -C root -cf layer.tar .
printf '{"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": ["sleep", "86400"]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
	"$(sha256sum layer.tar | cut -d ' ' -f 1)" >config.json
printf '[{"Config": "config.json", "RepoTags": ["` + webImage + `"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf /srv/web.tar manifest.json config.json layer.tar
rm -r /srv/web`

// webPod is a pod that serves the page, with a port of the node.
const webPod = `apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  containers:
  - name: web
    image: ` + webImage + `
    args: [httpd, -f, -p, "80", -h, /www]
    ports: [{containerPort: 80, hostPort: PORT}]
`

// cluster is a node with containerd and a kubelet's stand-in.
type cluster struct {
	*testing.T
	host    *netlab.Host
	outside *netlab.Outside
	cgroup  string
}

// pod is one that runs.
type pod struct {
	ID, Address string
	Containers  map[string]string
	port        string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	for _, program := range []string{"containerd", "ctr", "runc", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: run make test-packages", err)
		}
	}
	images, err := filepath.Glob(released + "/cnibox-image-*.tar")
	if err != nil || len(images) != 1 {
		t.Fatalf("the image is %q: %v; run make release ARCHES=amd64 before", images, err)
	}
	c := &cluster{t, netlab.NewHost(t), nil, fmt.Sprintf("/cnibox-packages-%d", os.Getpid())}
	c.outside = c.host.NewOutside(t)
	t.Cleanup(func() { removeCgroups(t, c.host, c.cgroup) })
	c.run("mount -t tmpfs none /srv; mkdir /srv/logs /srv/configmaps\n" + makeWebImage)
	c.host.Feed(t, containerdConfig, "sh", "-c", "cat >/srv/containerd.toml")
	// All that it starts ends with it, since it is the first process of a namespace. Mounts are shared, as systemd has it.
	daemon := c.host.Command("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--propagation", "shared", "sh", "-c",
		"containerd --config /srv/containerd.toml >/srv/logs/containerd 2>&1; exit")
	c.host.Background(t, daemon)
	c.run("until ctr version >/dev/null 2>&1; do sleep 0.05; done")
	for image, name := range map[string]string{"/srv/web.tar": webRepository, images[0]: "docker.io/cnibox/cnibox"} {
		t.Log(c.run("ctr --namespace k8s.io image import --digests --base-name " + name + " --snapshotter native " + image))
	}
	return c
}

func (c *cluster) run(script string) string {
	c.Helper()
	return c.host.MustRun(c, "sh", "-ec", script)
}

// removeCgroups removes the groups of what ran, whose last processes may be ending.
func removeCgroups(t testing.TB, host *netlab.Host, name string) {
	host.MustRun(t, "sh", "-ec", `for try in $(seq 200); do
			left=$(find /sys/fs/cgroup -depth -type d -path '*`+name+`*')
			[ -n "$left" ] || exit 0
			rmdir $left 2>/dev/null || sleep 0.05
		done
		echo "left: $left" >&2; exit 1`)
}

func (c *cluster) kubelet(args ...string) string {
	c.Helper()
	program := filepath.Join(netlab.Module(c, "test/packages/kubelet", "."), "kubelet")
	return c.host.MustRun(c, "timeout", append([]string{fmt.Sprint(netlab.Patience.Seconds()), program, criSocket, c.cgroup}, args...)...)
}

// start runs a pod of a file.
func (c *cluster) start(file string) *pod {
	c.Helper()
	p := &pod{}
	if err := json.Unmarshal([]byte(c.kubelet("run", file)), p); err != nil {
		c.Fatal(err)
	}
	return p
}

// startWeb runs a pod with the page, and makes sure that it answers.
func (c *cluster) startWeb(name, port string) *pod {
	c.Helper()
	file := "/srv/" + name + ".yaml"
	c.host.Feed(c, strings.NewReplacer("NAME", name, "PORT", port).Replace(webPod), "sh", "-c", "cat >"+file)
	p := c.start(file)
	p.port = port
	c.answers(p)
	return p
}

// answers makes sure that a pod's page is there for the node, and for others at the published port.
func (c *cluster) answers(p *pod) {
	c.Helper()
	c.run(fmt.Sprintf("curl -sS --retry 1000 --retry-connrefused --retry-delay 1 --retry-max-time %[1]v --max-time %[1]v -o /dev/null http://%[2]s", netlab.Patience.Seconds(), p.Address))
	for from, url := range map[*netlab.Namespace]string{&c.host.Namespace: p.Address, &c.outside.Namespace: netlab.HostIPv4 + ":" + p.port} {
		if page := from.MustRun(c, "curl", "-sS", "--max-time", fmt.Sprint(netlab.Patience.Seconds()), url); page != webPage {
			c.Errorf("%s answers %q", url, page)
		}
	}
}

// startDaemonSet runs the DaemonSet's pod, and waits until the agent is ready. It returns what the installation said.
func (c *cluster) startDaemonSet() (*pod, string) {
	c.Helper()
	c.run("rm -f /srv/logs/cnibox-*")
	p := c.start(c.daemonSet())
	netlab.Eventually(c, func() error {
		if _, err := c.host.Output(c.host.Command("sh", "-c", c.inAgent(p, "agent status"))); err != nil {
			return fmt.Errorf("the agent is not ready: %w\n%s", err, c.run("cat /srv/logs/cnibox-agent.log"))
		}
		return nil
	})
	return p, c.run("cat /srv/logs/cnibox-install.log")
}

// daemonSet is the file of it in the release.
func (c *cluster) daemonSet() string {
	c.Helper()
	files, err := filepath.Glob(released + "/cnibox-kubernetes-*.yaml")
	if err != nil || len(files) != 1 {
		c.Fatalf("the DaemonSet is %q: %v", files, err)
	}
	file, err := filepath.Abs(files[0])
	if err != nil {
		c.Fatal(err)
	}
	return file
}

// inAgent is a command line that runs cnictl in the agent's container, as `kubectl exec` does.
func (c *cluster) inAgent(p *pod, args string) string {
	return "ctr --namespace k8s.io task exec --exec-id $$ " + p.Containers["agent"] + " /usr/bin/cnictl " + args
}

// TestKubernetes does what docs/install/kubernetes.md says, on a node without plugins: the DaemonSet's pod installs them, and then a network, too; pods get
// it. It replaces an older version under a pod that runs. In the end all is gone.
func TestKubernetes(t *testing.T) {
	c := newCluster(t)
	empty := c.host.Snapshot(t)

	set, said := c.startDaemonSet()
	if !strings.Contains(said, "installed cnibox and ") || strings.Contains(said, "networks:") {
		t.Errorf("without a network, the installation says:\n%s", said)
	}
	c.kubelet("remove", set.ID)

	page, err := os.ReadFile("../../docs/install/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	network := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(page))
	c.run("mkdir -p /srv/configmaps/cnibox-network")
	c.host.Feed(t, network[1], "sh", "-c", "cat >/srv/configmaps/cnibox-network/10-pods.conflist")
	set, said = c.startDaemonSet()
	if !strings.Contains(said, "networks: /etc/cni/net.d/10-pods.conflist") {
		t.Errorf("with a network, the installation says:\n%s", said)
	}
	old := c.startWeb("old", "8080")
	c.kubelet("remove", set.ID)

	// Another version, which the DaemonSet replaces.
	c.run("cp " + netlab.Cnibox(t) + " /srv/cnibox; echo older >>/srv/cnibox; " + netlab.Cnictl(t) + " install --dir /opt/cni/bin --from /srv/cnibox; rm /srv/cnibox")
	older := c.run("sha256sum /opt/cni/bin/cnibox")
	set, said = c.startDaemonSet()
	if now := c.run("sha256sum /opt/cni/bin/cnibox"); now == older || !strings.Contains(said, "installed cnibox and ") {
		t.Errorf("nothing was replaced:\n%s", said)
	}
	c.answers(old)
	newer := c.startWeb("new", "8081")
	if shown := c.run(c.inAgent(set, "show")); !strings.Contains(shown, old.Address) || !strings.Contains(shown, newer.Address) {
		t.Errorf("cnictl show says\n%s", shown)
	}
	c.run("nft flush ruleset; until nft list ruleset | grep -q 8081; do sleep 0.05; done") // the agent puts it back
	c.answers(old)
	c.answers(newer)

	c.kubelet("remove", old.ID)
	c.kubelet("remove", newer.ID)
	if left := c.run("ls /var/lib/cni/networks/pods | grep ^10 || true; ip -o link show type veth | grep -v uplink || true"); left != "" {
		t.Errorf("left after the last DEL:\n%s", left)
	}
	t.Log(c.run(c.inAgent(set, "purge --apply")))
	t.Log(c.run(c.inAgent(set, "uninstall --dir /opt/cni/bin")))
	c.kubelet("remove", set.ID)
	c.run("rm /etc/cni/net.d/10-pods.conflist")
	if diff := empty.Diff(c.host.Snapshot(t), "mount ", "sysctl ", "file /opt/cni/bin drwx", "file /run ", "file /run/containerd", "file /run/cnibox-agent", "file /run/netns"); diff != "" {
		t.Errorf("left when all is gone:\n%s", diff)
	}
}
