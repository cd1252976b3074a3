package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// zoo is a node with attachments of several kinds, by the names of their pods.
//
//	web     bridge, with ports; a Kubernetes pod
//	ghost   bridge, with a port; its namespace is gone
//	lost    bridge, with a port; libcni's result is lost
//	edge    ptp
//	lan     macvlan
//	old     bridge of the reference plugins, with a port
type zoo struct {
	*operator
	pods    map[string]*netlab.Pod
	address map[string]string
}

// podName is what a container may call itself.
const podName = `<script>alert(1)</script>`

func newZoo(t *testing.T) *zoo {
	t.Helper()
	z := &zoo{newOperator(t), map[string]*netlab.Pod{}, map[string]string{}}
	z.addNetwork("edge", `[{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.55.0.0/28"}}]`)
	z.addNetwork("lan", `[{"type": "macvlan", "master": "uplink0", "ipam": {"type": "host-local", "subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100", "rangeEnd": "192.0.2.101"}}]`)
	z.addNetwork("old", `[{"type": "bridge", "bridge": "old0", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.99.0.0/24"}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]`)
	args := "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME="
	z.add("web", "demo", args+podName, "-p", "8080:80", "-p", "127.0.0.1:5353:53/udp")
	z.add("ghost", "demo", "", "-p", "8081:81")
	z.add("lost", "demo", "", "-p", "8082:82")
	z.add("edge", "edge", args+"ed\x1b[2Jge")
	z.add("lan", "lan", `CAP_ARGS={"portMappings": [{"hostPort": 7777, "containerPort": 77, "protocol": "tcp"}]}`) // which reaches no plugin
	z.add("old", "old", "", "-p", "9090:90", "--bin-dir", netlab.Reference(t))
	z.pods["ghost"].Delete(t)
	z.host.MustRun(t, "sh", "-c", "cd "+resultsDir+"; rm demo-lost-eth0; echo '{' >demo-torn-eth0")
	return z
}

// addNetwork writes the configuration of a network.
func (z *zoo) addNetwork(name, plugins string) {
	z.Helper()
	z.host.Feed(z, fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": %s}`, name, plugins), "sh", "-c", "cat >/etc/cni/net.d/20-"+name+".conflist")
}

// add attaches a new pod, which has its name for an id.
func (z *zoo) add(name, network, env string, args ...string) {
	z.Helper()
	pod := z.host.NewPod(z, name)
	cmd := z.host.Command(netlab.Cnictl(z), append([]string{"add", network, pod.Path(), "--id", name, "--json"}, args...)...)
	cmd.Env = append(os.Environ(), env)
	out, err := z.host.Output(cmd)
	var result struct{ IPs []struct{ Address string } }
	if err == nil {
		err = json.Unmarshal([]byte(out), &result)
	}
	if err != nil {
		z.Fatal(err)
	}
	address, _, _ := strings.Cut(result.IPs[0].Address, "/")
	z.pods[name], z.address[name] = pod, address
}

// show runs cnictl show, which must succeed, and returns its standard output.
func (z *zoo) show(args ...string) string {
	z.Helper()
	return z.host.MustRun(z, netlab.Cnictl(z), append([]string{"show"}, args...)...)
}

// document is show's as JSON.
func (z *zoo) document(args ...string) (d map[string]any) {
	z.Helper()
	if err := json.Unmarshal([]byte(z.show(append(args, "--json")...)), &d); err != nil {
		z.Fatal(err)
	}
	return d
}

// line returns the line of a table that begins with some words, with one space between words.
func line(table string, words ...string) string {
	for l := range strings.Lines(table) {
		if l = strings.Join(strings.Fields(l), " "); strings.HasPrefix(l+" ", strings.Join(words, " ")+" ") {
			return l
		}
	}
	return ""
}

// TestShow looks at one node in all ways.
func TestShow(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	z.html(t)
	z.completes(t)
	z.networksAndPorts(t)
	z.host.MustRun(t, "sh", "-c", ": >/var/lib/cni/networks/demo/10.88.0.77")
	z.attachments(t)
	z.keys(t)
}

// attachments lists what is there, whoever made it, and what is known of it.
func (z *zoo) attachments(t *testing.T) {
	code, printed := z.cnictl("show")
	if code != 0 || strings.Contains(printed, "7777") {
		t.Errorf("exit code %d", code)
	}
	for name, wants := range map[string][]string{
		"demo web":   {podName, z.address["web"] + ", fd00:88::", "alive", "8080->80/tcp, 127.0.0.1:5353->53/udp", "veth"},
		"demo ghost": {z.address["ghost"], "gone", "8081->81/tcp"},
		"demo lost":  {z.address["lost"], "alive", "8082->?/tcp", "veth"},
		"edge edge":  {z.address["edge"], "alive", "veth"},
		"lan lan":    {z.address["lan"], "alive"},
		"old old":    {z.address["old"], "alive", "9090->90/tcp", "veth"},
		"6":          {"6 attachments, 5 alive, 1 gone"},
		"`cnictl":    {"cnictl gc"},
		"1":          {"1 thing held for nobody who is known"},
		"note:":      {"demo-torn-eth0"},
	} {
		got := line(printed, name)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in the line of %s: %q", want, name, got)
			}
		}
	}
	for _, c := range []struct {
		args  []string
		count int
	}{{[]string{"--network", "demo"}, 3}, {[]string{"--state", "gone"}, 1}, {[]string{"--state", "alive", "--network", "demo"}, 2}} {
		if got := len(z.document(c.args...)["attachments"].([]any)); got != c.count {
			t.Errorf("%v: %d attachments, want %d", c.args, got, c.count)
		}
	}
	if strings.Contains(printed, "\x1b") || !strings.Contains(printed, "shop/ed?[2Jge") {
		t.Errorf("what a container is called reaches the terminal:\n%s", printed)
	}
	if strings.Index(printed, z.address["web"]) > strings.Index(printed, z.address["ghost"]) {
		t.Errorf("not ordered by address:\n%s", printed)
	}
	if got := line(printed, "demo web"); strings.Contains(got, "?") {
		t.Errorf("a port is there twice: %s", got)
	}
	if d := z.document("--network", "edge"); len(d["unread"].([]any))+len(d["unowned"].([]any)) > 0 {
		t.Errorf("of the network edge: %v", d)
	}
	if got := line(z.show("--wide"), "demo", "ghost"); !strings.Contains(got, "/run/netns/ghost is gone") {
		t.Errorf("--wide does not say why: %s", got)
	}
	if code, printed := z.cnictl("show", "--state", "dead"); code != 2 || !strings.Contains(printed, "alive, gone, replaced or unknown") {
		t.Errorf("exit code %d: %s", code, printed)
	}
}

// networksAndPorts lists the pools and the ports.
func (z *zoo) networksAndPorts(t *testing.T) {
	z.add("second", "lan", "")
	z.host.MustRun(t, "mv", "/etc/cni/net.d/20-edge.conflist", "/run")
	defer z.host.MustRun(t, "mv", "/run/20-edge.conflist", "/etc/cni/net.d")
	defer z.must("del", "lan", "--id", "second")
	networks := z.show("networks")
	for _, want := range []string{
		"demo bridge, tuning, portmap 10.88.0.0/24 253 3 1% 1 3 /etc/cni/net.d/10-demo.conflist", "fd00:88::/64 2^64 3 0% 1",
		"lan macvlan 192.0.2.100-192.0.2.101 2 2 100% 0 2 /etc/cni/net.d/20-lan.conflist", "edge 0 1 none: only attachments name it",
	} {
		if line(networks, want) == "" {
			t.Errorf("%q is missing:\n%s", want, networks)
		}
	}
	ports := z.show("ports")
	for _, want := range []string{
		"127.0.0.1 5353 udp -> " + z.address["web"] + ":53", "* 8080 tcp -> " + z.address["web"] + ":80", "* 8081 tcp -> " + z.address["ghost"] + ":81 ghost demo gone",
		"* 8082 tcp -> " + z.address["lost"] + ":? lost demo alive", "* 9090 tcp -> " + z.address["old"] + ":90 old old alive",
	} {
		if line(ports, want) == "" {
			t.Errorf("%q is missing:\n%s", want, ports)
		}
	}
	if first, last := strings.Index(ports, " 5353 "), strings.Index(ports, " 9090 "); first > last {
		t.Errorf("the ports are not in order:\n%s", ports)
	}
}

// TestShowName finds things by all that they are called.
func TestShowName(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	z.host.NewPod(t, "bare").MustRun(t, "ip", "link", "add", "inside0", "type", "bridge")
	z.add("web2", "demo", "")
	z.pods["web2"].MustRun(t, "sh", "-ec", `ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99; ip link set eth0 up
		ip address delete `+z.address["web2"]+`/24 dev eth0; ip address add 10.88.0.200/24 dev eth0; ip route add 10.9.0.0/16 dev eth0`)
	z.addNetwork("idle", `[{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.61.0.0/24"}}]`)
	z.host.MustRun(t, "sh", "-c", "mkdir -p /var/lib/cni/multus/results; cp -p "+resultsDir+"/demo-web-eth0 /var/lib/cni/multus/results; touch -d '2 days ago' /var/lib/cni/multus/results/*")
	z.pods["web"].Background(t, z.host.Command("sleep", "infinity"))
	hostEnd := plugin.Key{Network: "demo", ContainerID: "web", IfName: "eth0"}.HostEnd(0)
	mac := regexp.MustCompile(`link/ether (\S+)`).FindStringSubmatch(z.pods["web"].MustRun(t, "ip", "link", "show", "dev", "eth0"))[1]
	for _, c := range []struct {
		name  string
		by    string // of the first match
		wants []string
	}{
		{z.address["web"], "address", []string{"container web", "shop/" + podName, "alive", "/run/netns/web, inode ", "port of demo0", "10-demo.conflist", "8080->80/tcp",
			"host-local: address " + z.address["web"], "bridge: link " + hostEnd, "portmap: portmap tcp/8080", "default via 10.88.0.1", resultsDir + "/demo-web-eth0",
			"older /var/lib/cni/multus/results/demo-web-eth0 ("}},
		{z.address["web"] + "/24", "address", nil},
		{"web", "container", []string{"process ", " (sleep)"}}, {"web/eth0", "container", nil}, {"demo/web/eth0", "container", nil},
		{podName, "pod", nil}, {"shop/" + podName, "pod", nil},
		{hostEnd, "host end", nil}, {mac, "MAC address", nil}, {strings.ToUpper(mac), "MAC address", nil},
		{"8080", "port", nil}, {":8080", "port", nil}, {"127.0.0.1:5353", "port", nil}, {"tcp/9090", "port", []string{"container old"}}, {"8082", "port", []string{"container lost"}},
		{"/run/netns/web", "namespace", nil},
		{"gho", "container", []string{"container ghost", "gone: its network namespace /run/netns/ghost is gone", "demo0"}},
		{z.address["edge"], "address", []string{"ptp: link veth"}},
		{z.address["lan"], "address", []string{"behind uplink0", "macvlan"}},
		{"demo", "network", []string{"network demo", "10.88.0.0/24", "demo web"}},
		{"demo0", "link", []string{"link demo0", "bridge", "10.88.0.1/24", "demo web"}},
		{"uplink0", "link", []string{"192.0.2.1/24", "lan lan"}},
		{"10.88.0.1", "address", []string{"link demo0"}},
		{"10.88.0.0/24", "subnet", []string{"pool 10.88.0.0/24 network demo 4 of 253 used", "demo web"}},
		{"10.61.0.1", "pool", []string{"not handed out: the gateway, of the pool 10.61.0.0/24 of network idle"}},
		{"10.88.0.99", "pool", []string{"free, of the pool 10.88.0.0/24 of network demo"}},
		{"bare", "namespace", []string{"namespace /run/netns/bare", "none that is known", "inside0, bridge"}},
		// A container's interface that is no more what ADD made it.
		{z.address["web2"], "address", []string{z.address["web2"] + "/24 not there any more", "10.88.0.200/24 not of ADD", "10.9.0.0/16 not of ADD", "02:00:00:00:00:99, mtu 1500, up, was "}},
		{"10.88.0.200", "pool", []string{"free, of the pool", "container web2 (found by address inside, which no ADD gave)"}},
		{"02:00:00:00:00:99", "MAC address inside, which no ADD gave", []string{"container web2"}},
	} {
		printed := z.show(c.name)
		words := strings.Join(strings.Fields(printed), " ")
		for _, want := range c.wants {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q is missing:\n%s", c.name, want, printed)
			}
		}
		if strings.Contains(printed, "not of ADD") != strings.Contains(printed, "container web2") {
			t.Errorf("%s: what is inside is wrongly compared with what ADD gave:\n%s", c.name, printed)
		}
		matches, count := z.document(c.name)["matches"].([]any), 1
		if c.name == "10.88.0.200" {
			count = 2
		}
		if by := matches[0].(map[string]any)["by"]; by != c.by || len(matches) != count {
			t.Errorf("%s is found by %q, want %q; %d matches", c.name, by, c.by, len(matches))
		}
	}
	// No other test has 10.7.7.7: show finds their namespaces too.
	for name, want := range map[string]string{"webb": "there is web", "10.7.7.7": "no pool hands it out", "ff:ff:ff:ff:ff:fe": "nothing on this node"} {
		if code, printed := z.cnictl("show", name); code != 1 || !strings.Contains(printed, want) {
			t.Errorf("%s: exit code %d: %s", name, code, printed)
		}
	}
	z.must("add", "edge", z.pods["web"].Path(), "--id", "web", "--ifname", "net1")
	if words := strings.Join(strings.Fields(z.show("web")), " "); !strings.Contains(words, "also in it edge/web/net1") || !strings.Contains(words, "also in it demo/web/eth0") {
		t.Error(words)
	}
	for i := range 4 {
		z.add(fmt.Sprint("many-", i), "demo", "")
	}
	if printed := z.show("many"); !strings.Contains(printed, "4 attachments are called many") || line(printed, "demo", "many-3") == "" {
		t.Error(printed)
	}
}

// keys: what scripts read keeps its names.
func (z *zoo) keys(t *testing.T) {
	z.addNetwork("limited", `[{"type": "bridge", "bridge": "limited0", "ipam": {"type": "static", "addresses": [{"address": "10.60.0.2/24", "gateway": "10.60.0.1"}]}}, {"type": "tuning"}]`)
	z.add("limited", "limited", "")
	for args, want := range map[string]string{
		"": `attachments attachments.addresses attachments.cache attachments.containerID attachments.gateways attachments.held attachments.held.owner attachments.held.network
			attachments.held.plugin attachments.held.since attachments.held.what attachments.hostEnd attachments.hostEnd.addresses attachments.hostEnd.kind attachments.hostEnd.mac
			attachments.hostEnd.master attachments.hostEnd.mtu attachments.hostEnd.name attachments.hostEnd.owner attachments.hostEnd.up attachments.ifname attachments.mac
			attachments.master attachments.netns attachments.network attachments.owner attachments.plugins attachments.pod attachments.ports attachments.ports.containerPort
			attachments.ports.hostIP attachments.ports.hostPort attachments.ports.protocol attachments.since attachments.state attachments.why
			unowned unowned.network unowned.plugin unowned.since unowned.what unread unread.network unread.what unread.why`,
		"networks": `networks networks.addresses networks.attachments networks.cniVersion networks.file networks.gone networks.network networks.plugins networks.pools networks.pools.gone
			networks.pools.range networks.pools.size networks.pools.subnet networks.pools.used unread unread.network unread.what unread.why`,
		"ports": `ports ports.address ports.containerID ports.containerPort ports.hostIP ports.hostPort ports.ifname ports.network ports.pod ports.protocol ports.state
			unread unread.network unread.what unread.why`,
		"limited": `matches matches.attachment matches.attachment.addresses matches.attachment.beside matches.attachment.cache matches.attachment.conflist
			matches.attachment.containerID matches.attachment.gateways matches.attachment.held matches.attachment.held.network matches.attachment.held.owner
			matches.attachment.held.plugin matches.attachment.held.what matches.attachment.hostEnd matches.attachment.hostEnd.kind
			matches.attachment.hostEnd.mac matches.attachment.hostEnd.master matches.attachment.hostEnd.mtu matches.attachment.hostEnd.name matches.attachment.hostEnd.owner
			matches.attachment.hostEnd.up matches.attachment.ifname matches.attachment.inside matches.attachment.inside.foreign matches.attachment.inside.foreignRoutes
			matches.attachment.inside.interface matches.attachment.inside.interface.addresses matches.attachment.inside.interface.kind matches.attachment.inside.interface.mac
			matches.attachment.inside.interface.mtu matches.attachment.inside.interface.name matches.attachment.inside.interface.routes matches.attachment.inside.interface.up
			matches.attachment.inside.missing matches.attachment.inside.missingRoutes matches.attachment.inside.others matches.attachment.mac matches.attachment.master
			matches.attachment.namespace matches.attachment.namespace.inode matches.attachment.namespace.paths matches.attachment.netns matches.attachment.network
			matches.attachment.others matches.attachment.owner matches.attachment.plugins matches.attachment.ports matches.attachment.routes matches.attachment.since
			matches.attachment.state matches.attachment.why matches.by matches.network matches.network.addresses matches.network.attached matches.network.attachments
			matches.network.cniVersion matches.network.file matches.network.gone matches.network.network matches.network.plugins matches.network.pools name unread unread.network
			unread.what unread.why`,
		"demo0":        `matches.link matches.link.addresses matches.link.attached matches.link.kind matches.link.mac matches.link.mtu matches.link.name matches.link.others matches.link.up`,
		"10.88.0.77":   `matches.address matches.address.address matches.address.gateway matches.address.held matches.address.network matches.address.pool`,
		"10.55.0.0/28": `matches.subnet matches.subnet.attached matches.subnet.pools matches.subnet.subnet`,
	} {
		got := map[string]bool{}
		collectKeys(z.document(strings.Fields(args)...), "", got)
		for _, key := range strings.Fields(want) {
			if !got[key] {
				t.Errorf("show %s --json has no %s", args, key)
			}
			delete(got, key)
		}
		if left := slices.Sorted(maps.Keys(got)); len(left) > 0 && !strings.Contains(want, "matches.link") && !strings.Contains(want, "matches.subnet") &&
			!strings.Contains(want, "matches.address ") && !strings.Contains(want, "matches.network.attached") {
			t.Errorf("show %s --json has %v besides, which this test does not know", args, left)
		}
	}
}

// collectKeys notes the keys of a document, each with those above it.
func collectKeys(v any, above string, keys map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			collectKeys(e, above, keys)
		}
	case map[string]any:
		for key, e := range v {
			path := strings.TrimPrefix(above+"."+key, ".")
			keys[path] = true
			collectKeys(e, path, keys)
		}
	}
}

// html draws the node in a file that needs nothing else.
func (z *zoo) html(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.html")
	z.must("show", "--html", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<h2>demo0</h2>", "<h2>old0</h2>", "<h2>uplink0</h2>", "routed by the host", "8080 → 80", "10.88.0.0/24", "3 of 253 used", "<b>1</b> gone", "demo-torn-eth0", `class="box warning"`, "cache-torn",
		"&lt;script&gt;alert(1)&lt;/script&gt;",
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%q is missing", want)
		}
	}
	if found := regexp.MustCompile(`https?://|src=|@import|url\(|<script>alert|class="box info"`).Find(text); found != nil {
		t.Errorf("the page has %q", found)
	}
	if out := z.show("--html", "-", "--network", "edge"); !strings.HasPrefix(out, "<!DOCTYPE html>") || strings.Contains(out, "demo0") {
		t.Errorf("of the network edge:\n%.500s", out)
	}
	if code, printed := z.cnictl("show", "--html", "/nonexistent/node.html"); code != 1 || !strings.Contains(printed, "/nonexistent/node.html") {
		t.Errorf("exit code %d: %s", code, printed)
	}
}

// completes completes what the node has.
func (z *zoo) completes(t *testing.T) {
	for args, want := range map[string]string{
		"show de":                      "demo demo0",
		"show gh":                      "ghost",
		"show --network o":             "old",
		"show ports --state ":          "alive gone replaced unknown",
		"show networks ":               "",
		"add demo /run/netns/w":        "/run/netns/web",
		"check l":                      "lan",
		"del demo --id ":               "ghost lost web",
		"del demo --id web --ifname ":  "eth0",
		"gc e":                         "edge",
		"status e":                     "edge",
		"probe e":                      "edge",
		"run --network o":              "old",
		"exec " + z.address["edge"]:    z.address["edge"],
		"capture edg":                  "edge",
		"capture shop/e":               "",
		"capture edge --ifname ":       "eth0",
		"repair la":                    "lan",
		"release " + z.address["lan"]:  z.address["lan"],
		"release 10.0.0.1 --network l": "lan",
	} {
		fields := strings.Split(args, " ")
		_, printed := z.cnictl(append([]string{"__complete"}, fields...)...)
		var names []string
		for l := range strings.Lines(printed) {
			if name, _, _ := strings.Cut(strings.TrimSpace(l), "\t"); name != "" && !strings.HasPrefix(name, ":") && !strings.HasPrefix(name, "Completion ended") {
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script := z.must("completion", shell); !strings.Contains(script, "cnictl") {
			t.Errorf("completion %s: %s", shell, script)
		}
	}
}

// TestShowReplaced: of two containers with one path the later one has it.
func TestShowReplaced(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pod, _ := o.attach("first")
	pod.Replace(t)
	o.host.MustRun(t, "touch", "-d", "1 minute ago", resultsDir+"/demo-first-eth0")
	o.must("add", "demo", pod.Path(), "--id", "second")
	printed := o.must("show", "--wide")
	if first, second := line(printed, "demo first"), line(printed, "demo second"); !strings.Contains(first, "replaced") || !strings.Contains(first, "another one is at "+pod.Path()+" by now") || !strings.Contains(second, "alive") {
		t.Error(printed)
	}
}
