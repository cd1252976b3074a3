package runtimes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// More networks of a node, besides the one that containers of runtimes are attached to.
const operatorNetworks = `
{"cniVersion": "1.1.0", "name": "shop", "plugins": [
  {"type": "bridge", "bridge": "shop0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/24"}], [{"subnet": "fd00:89::/64"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall"}, {"type": "bandwidth", "ingressRate": 80000000, "ingressBurst": 80000000}]}
{"cniVersion": "1.1.0", "name": "alone", "plugins": [
  {"type": "ptp", "ipMasq": true, "ipMasqBackend": "iptables", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.90.0.0/28"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
{"cniVersion": "1.1.0", "name": "lan", "plugins": [
  {"type": "macvlan", "master": "uplink0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.200", "rangeEnd": "192.0.2.220", "gateway": "192.0.2.254"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
{"cniVersion": "1.1.0", "name": "leased", "plugins": [{"type": "macvlan", "master": "uplink0", "ipam": {"type": "dhcp"}}]}
{"cniVersion": "1.1.0", "name": "card", "plugins": [{"type": "host-device", "device": "eth1", "ipam": {"type": "static", "addresses": [{"address": "10.94.0.2/24"}]}}]}
{"cniVersion": "1.1.0", "name": "machines", "plugins": [{"type": "tap", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.93.0.0/24"}]]}}]}
{"cniVersion": "1.0.0", "name": "overlay", "plugins": [{"type": "flannel", "delegate": {"bridge": "flannel0", "isDefaultGateway": true}}]}
{"cniVersion": "1.0.0", "name": "old", "plugins": [
  {"type": "bridge", "bridge": "old0", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.95.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}`

// attached is how many containers the node of an operator has on each network.
var attached = map[string]int{"web": 10, "shop": 4, "alone": 3, "lan": 3, "leased": 2, "cni-loopback": 4, "card": 1, "machines": 2, "overlay": 3, "old": 3}

// TestOperator has an operator look at a node with 35 attachments of ten networks, made by containerd, podman, cnictl and the
// reference plugins. TRANSCRIPT names a directory for what the commands print.
func TestOperator(t *testing.T) {
	n := newOperatorNode(t)
	defer n.removeAll(t)
	n.populate(t)
	var shown struct {
		Attachments []struct {
			Network, ContainerID, State, Why string
			Addresses                        []string
		}
	}
	if err := json.Unmarshal([]byte(n.must(t, "show", "--json")), &shown); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, a := range shown.Attachments {
		got[a.Network]++
		if a.State != "alive" || len(a.Addresses) == 0 {
			t.Errorf("%+v", a)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(attached) {
		t.Errorf("attachments: %v, want %v", got, attached)
	}
	for _, c := range []struct {
		line string
		code int
		want string // is printed
	}{
		{"show", 0, "35 attachments, 35 alive"},
		{"show networks", 0, "10.89.0.0/24"},
		{"show ports", 0, "8343"},
		{"show 8101", 0, "found by port"},
		{"show shop-1", 0, "at most 80 Mbit/s"},
		{"show cni0", 0, "podman-3"},
		{"show 10.95.0.2", 0, "container old-0"},
		{"show --html " + workDir + "/node.html", 0, ""},
		{"doctor", 0, "nothing is wrong"},
		{"repair", 0, "35 right"},
		{"gc", 0, "nothing to remove"},
		{"release 10.89.0.2", 1, "is in use"},
		{"probe shop --to " + netlab.OutsideIPv4, 0, "published port, from a, TCP"},
		{"exec shop-0 -- ip -br address", 0, "10.89.0.2/24"},
		{"capture shop-0 --for 1s", 0, ""},
		{"log 10.89.0.2", 0, "shop-0"},
		{"log --verb ADD --network shop", 0, "bandwidth"},
		{"explain 11", 0, "try again later"},
		{"metrics", 0, `cnibox_attachments{network="web",state="alive"} 10`},
		{"bugreport -o " + workDir + "/report.tar.gz", 0, "parts"},
		{"purge", 1, "nothing is removed while something may be in use"},
	} {
		code, printed := n.cnictl(t, strings.Fields(c.line)...)
		if code != c.code || !strings.Contains(printed, c.want) {
			t.Errorf("cnictl %s: exit code %d, want %d; %q is not in\n%s", c.line, code, c.code, c.want, printed)
		}
	}
}

type operatorNode struct {
	*node
	daemon   *daemon
	removals []func()
	commands int
}

// removeAll removes the containers, the last one first.
func (n *operatorNode) removeAll(t *testing.T) {
	t.Helper()
	for _, remove := range slices.Backward(n.removals) {
		remove()
	}
}

func (n *operatorNode) atEnd(remove func()) { n.removals = append(n.removals, remove) }

func newOperatorNode(t *testing.T) *operatorNode {
	t.Helper()
	n := &operatorNode{node: newNode(t)}
	var list struct{ Name string }
	for i, line := range strings.Split(strings.ReplaceAll(strings.TrimSpace(operatorNetworks), "\n  ", " "), "\n") {
		if err := json.Unmarshal([]byte(line), &list); err != nil {
			t.Fatal(err, line)
		}
		n.writeFile(t, fmt.Sprintf("%s/%d-%s.conflist", conflistDir, 20+i, list.Name), line)
	}
	n.writeFile(t, "/run/flannel/subnet.env", "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n")
	n.run(t, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "wire1")
	n.must(t, "log", "on")
	n.outside.ServeDNSMasq(t)
	n.StartDHCPDaemon(t)

	// `ip netns add` makes /run/netns a mount of its own. Namespaces that containerd has mounted there before could not be unmounted any more.
	n.run(t, "ip", "netns", "add", "first")
	n.run(t, "ip", "netns", "delete", "first")
	n.daemon = n.startContainerd(t, containerdOld, criNamespace, 1)
	n.daemon.ctr(t, "--namespace", ctrNamespace, "image", "import", "--snapshotter", "native", imageFile)
	n.setUpPodman(t)
	return n
}

// populate has runtimes and cnictl make the attachments.
func (n *operatorNode) populate(t *testing.T) {
	t.Helper()
	for i := range 4 {
		pod := n.daemon.criPodAt(t, fmt.Sprint("pod-", i), 8100+i)
		n.atEnd(func() { pod.remove(t) })
		c := n.podmanContainerAt(t, fmt.Sprint("podman-", i), 8200+i)
		n.atEnd(func() { c.remove(t) })
	}
	for i := range 2 {
		c := n.daemon.ctrDetached(t, fmt.Sprint("ctr-", i))
		n.atEnd(func() { c.remove(t) })
	}
	reference := netlab.Reference(t)
	for _, network := range []string{"shop", "alone", "lan", "leased", "card", "machines", "overlay", "old"} {
		for i := range attached[network] {
			pod := n.NewPod(t, fmt.Sprint(network, "-", i))
			args := []string{"add", network, pod.Path(), "--id", pod.Name()}
			if network == "shop" || network == "old" {
				args = append(args, "--publish", fmt.Sprintf("%d:80", 8300+len(network)*10+i))
			}
			if network == "old" {
				args = append(args, "--bin-dir", reference)
			}
			n.must(t, args...)
			n.atEnd(func() { n.must(t, "del", network, pod.Path(), "--id", pod.Name()) })
		}
	}
}

// cnictl runs the tool: its exit code, and all that it prints.
func (n *operatorNode) cnictl(t *testing.T, args ...string) (code int, printed string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netlab.Patience)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, netlab.Cnictl(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = n.Run(cmd)
	if cmd.ProcessState == nil {
		t.Fatalf("cnictl %s did not start", strings.Join(args, " "))
	}
	if dir := os.Getenv("TRANSCRIPT"); dir != "" && !slices.Contains([]string{"add", "del"}, args[0]) {
		n.commands++
		text := fmt.Sprintf("$ cnictl %s\n%s", strings.Join(args, " "), out.String())
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%s.txt", n.commands, args[0])), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func (n *operatorNode) must(t *testing.T, args ...string) string {
	t.Helper()
	code, printed := n.cnictl(t, args...)
	if code != 0 {
		t.Errorf("cnictl %s: exit code %d\n%s", strings.Join(args, " "), code, printed)
	}
	return printed
}
