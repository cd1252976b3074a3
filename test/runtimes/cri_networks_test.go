package runtimes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func testCRIPorts(t *testing.T, c containerd) {
	d := newDaemon(t, c, criNamespace)
	before := d.settle(t, d.criPod)
	web := d.criPodPorts(t, "web", hostPort{8080, ""}, hostPort{8081, netlab.HostIPv4}, hostPort{8082, "127.0.0.1"})
	other := d.criPodAt(t, "other", 8090)
	d.checkPublished(t, "8080")
	for _, tt := range []struct {
		from    netlab.Namespace
		address string
		answers bool
	}{
		{d.outside.Namespace, netlab.HostIPv4 + ":8081", true},
		{d.Namespace, netlab.HostIPv4 + ":8081", true},
		{d.Namespace, "127.0.0.1:8081", false},
		{d.Namespace, "127.0.0.1:8082", true},
		{d.Namespace, netlab.HostIPv4 + ":8082", false},
		{d.outside.Namespace, netlab.HostIPv4 + ":8082", false},
	} {
		wait := silence
		if tt.answers {
			wait = netlab.Patience
		}
		if _, err := fetch(tt.from, tt.address, wait); (err == nil) != tt.answers {
			t.Errorf("from %s, %s: %v", tt.from.Name(), tt.address, err)
		}
	}
	for _, from := range []container{web, other} {
		d.checkPageFrom(t, from, "8080")
		d.checkPageFrom(t, from, "8081")
	}
	_, err := d.startPod("late", hostPort{port: 8080})
	if want := "host port tcp/8080 is already published by " + networkName + "/" + web.id; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a pod with a port of another: %v; want %q", err, want)
	}
	t.Logf("as it should be: %v", err)
	d.checkPublished(t, "8080")
	web.remove(t)
	other.remove(t)
	d.checkUnpublished(t, "8080")
	d.checkSettled(t, before)
}

func testCRITwoNetworks(t *testing.T, c containerd) {
	const subnet, far = "10.89.0.0/24", "198.51.100.1"
	n := newNode(t)
	n.use(t, network{version: c.network})
	second := network{version: c.network, name: "back", bridge: "back0", subnets: []string{subnet}, routes: []string{far + "/32"}}
	n.writeFile(t, conflistDir+"/20-back.conflist", second.conflist(t))
	n.outside.AddRoute(t, subnet)
	n.outside.MustRun(t, "ip", "address", "add", far+"/32", "dev", "lo")

	d := n.startContainerd(t, c, criNamespace, 2)
	before := d.settle(t, d.criPod)
	web := d.criPod(t, "web")
	d.checkPublished(t, "8080")
	d.checkContainer(t, web)
	address := d.addressOf(t, web, "eth1", "-4")
	checkPage(t, d.outside.Namespace, address+":80")
	if got := web.exec(t, "ip route get "+far); !strings.Contains(got, "dev eth1") {
		t.Errorf("%s is reached by %q, want eth1", far, got)
	}
	server := d.outside.ServeTCP(t, far+":0")
	if got, want := web.exec(t, fmt.Sprintf("echo hello | nc -w %v %s %d", netlab.Patience.Seconds(), server.Addr(), server.Port())), "outside saw "+netlab.HostIPv4; got != want {
		t.Errorf("over the second network the pod was answered %q, want %q", got, want)
	}
	web.remove(t)
	d.checkUnpublished(t, "8080")
	d.checkSettled(t, before)
}

// addressOf returns the address of an interface of a container, of a family as ip names it.
func (n *node) addressOf(t *testing.T, c container, link, family string) string {
	t.Helper()
	address, err := addressIn(c.exec(t, showAddress(link, family)))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func showAddress(link, family string) string {
	return "ip " + family + " -o address show " + link + " scope global"
}

// addressIn returns the address in what showAddress prints.
func addressIn(shown string) (string, error) {
	// 2: eth0    inet 10.88.0.2/24 brd …
	fields := strings.Fields(shown)
	if len(fields) < 4 {
		return "", fmt.Errorf("no address: %q", shown)
	}
	address, _, _ := strings.Cut(fields[3], "/")
	return address, nil
}

// podNetwork6 is the network's in the scenario of both families.
const podNetwork6 = "fd00:88::/64"

// useDual makes a network of both families the one that containers are attached to.
func (n *node) useDual(t *testing.T, c containerd) {
	t.Helper()
	n.use(t, network{version: c.network, subnets: []string{podNetwork, podNetwork6}, routes: []string{"0.0.0.0/0", "::/0"}})
	n.outside.AddRoute(t, podNetwork6)
}

// checkIPv6 checks what checkContainer does for the other family.
func (n *node) checkIPv6(t *testing.T, c container) {
	t.Helper()
	checkPage(t, n.Namespace, "["+c.address6+"]:80")
	checkPage(t, n.outside.Namespace, "["+c.address6+"]:80")
	server := n.outside.ServeTCP(t, "["+netlab.OutsideIPv6+"]:0")
	if got, want := c.exec(t, fmt.Sprintf("echo hello | nc -w %v %s %d", netlab.Patience.Seconds(), server.Addr(), server.Port())), "outside saw "+netlab.HostIPv6; got != want {
		t.Errorf("over IPv6 the container was answered %q from outside, want %q", got, want)
	}
}

func testCRIDualStack(t *testing.T, c containerd) {
	n := newNode(t)
	n.useDual(t, c)
	d := n.startContainerd(t, c, criNamespace, 1)
	before := d.settle(t, d.criPod)
	web := d.criPod(t, "web")
	if web.address6 == "" {
		t.Error("the CRI tells no IPv6 address")
	}
	d.checkContainer(t, web)
	d.checkIPv6(t, web)
	d.checkPublished(t, "8080")
	checkPage(t, d.outside.Namespace, "["+netlab.HostIPv6+"]:8080")
	checkPage(t, d.Namespace, "["+netlab.HostIPv6+"]:8080")
	web.remove(t)
	d.checkUnpublished(t, "8080")
	if page, err := fetch(d.outside.Namespace, "["+netlab.HostIPv6+"]:8080", silence); err == nil {
		t.Errorf("over IPv6 port 8080 still answers: %q", page)
	}
	d.checkSettled(t, before)
}

// testCRIEdited: containerd calls DEL only for networks that it has at the moment, and removes no pod while it has none.
func testCRIEdited(t *testing.T, c containerd) {
	d := newDaemon(t, c, criNamespace)
	before := d.settle(t, d.criPod)
	original := d.conflist
	web, other := d.criPod(t, "web"), d.criPodAt(t, "other", 8090)
	d.use(t, network{version: c.network, bridge: "other0", subnets: []string{"10.99.0.0/24"}})
	web.remove(t)
	d.checkUnpublished(t, "8080")
	checkForgotten(t, d.Snapshot(t), web)

	d.run(t, "rm", conflistFile)
	netlab.Eventually(t, func() error {
		if out, err := d.criclient("status"); out == "" {
			return fmt.Errorf("the network is still ready: %v", err)
		}
		return nil
	})
	if _, err := d.criclient("remove", other.id); err == nil {
		t.Error("containerd has removed a pod without a network")
	} else {
		t.Logf("as containerd does it: %v", err)
	}
	d.writeFile(t, conflistFile, network{version: c.network, name: "next", bridge: "next0", subnets: []string{"10.99.0.0/24"}}.conflist(t))
	netlab.Eventually(t, func() error {
		_, err := d.criclient("remove", other.id)
		return err
	})
	// containerd does not wait for the kernel to end the pod's network namespace. Until then gc lets the pod's link live.
	netlab.Until(t, "the end of the pod's link", func() bool { return d.run(t, "ip", "link", "show", "master", bridgeName) == "" })
	d.gc(t)
	d.writeFile(t, conflistFile, original)
	d.checkSettled(t, before)
}

// testCRIStatus: the network is ready while all of its plugins are there. STATUS came with version 1.1.0.
func testCRIStatus(t *testing.T, c containerd) {
	d := newDaemon(t, c, criNamespace)
	before := d.settle(t, d.criPod)
	for range 5 {
		if why := d.cri(t, "status"); why != "" {
			t.Errorf("the network is not ready: %s", why)
		}
	}
	if got := d.called(t, "STATUS"); got < 5 {
		t.Errorf("the CRI called STATUS %d times, want it each time it is asked", got)
	}
	d.checkSettled(t, before)

	const aside = workDir + "/aside"
	d.run(t, "mkdir", aside)
	for _, plugin := range []string{"bridge", "portmap", "tuning", "host-local"} {
		path := netlab.PluginDir + "/" + plugin
		d.run(t, "mv", path, aside)
		why := d.cri(t, "status")
		if !strings.Contains(why, plugin) {
			t.Errorf("without %s: %q", plugin, why)
		}
		t.Logf("as it should be: %s", why)
		d.run(t, "mv", aside+"/"+plugin, path)
		if why := d.cri(t, "status"); why != "" {
			t.Errorf("with %s again the network is not ready: %s", plugin, why)
		}
	}
	d.checkSettled(t, before)
	web := d.criPod(t, "web")
	web.remove(t)
	d.checkSettled(t, before)
}
