package runtimes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// goCNINetwork is the network of these tests: of both kinds of addresses, which containers may choose. With hairpinMode, which nerdctl and podman
// write, a container reaches its own published port also where the kernel has bridges call the packet filter.
const goCNINetwork = `{"cniVersion": "1.1.0", "name": "` + networkName + `", "plugins": [
  {"type": "bridge", "bridge": "` + bridgeName + `", "isGateway": true, "ipMasq": true, "hairpinMode": true, "capabilities": {"ips": true, "mac": true},
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podNetwork + `"}], [{"subnet": "` + podNetwork6 + `"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
  {"type": "tuning", "sysctl": {"net.core.somaxconn": "` + somaxconn + `"}},
  {"type": "portmap", "capabilities": {"portMappings": true}},
  {"type": "` + observerName + `", "log": "` + observerLog + `"}]}`

// goCNIOfNetwork is what goCNINetwork keeps for its next container besides ofNetwork.
var goCNIOfNetwork = []string{"route ipv6 fd00:88:", "file /var/lib/cni/networks/web/last_reserved_ip.1 "}

// TestGoCNI has go-cni attach a container to lo and to a network with a published port, as containerd and nerdctl do.
func TestGoCNI(t *testing.T) {
	tried(t, goCNI, onePod)
	g := newGoCNI(t)
	g.writeFile(t, conflistFile, strings.Replace(goCNINetwork, `, [{"subnet": "`+podNetwork6+`"}]`, "", 1))
	g.call(t, "load 1")
	start := func(t *testing.T, name string) container {
		return g.start(t, name, goCNIContainer{Ports: []portMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}}).container
	}
	g.testLifecycle(t, start, func(t *testing.T, _ container) { g.checkPublished(t, "8080") })
	g.checkUnpublished(t, "8080")
}

func TestGoCNIPublishedPort(t *testing.T) {
	tried(t, goCNI, publishedPort)
	g := newGoCNI(t)
	fresh := g.Snapshot(t)
	everywhere := portMapping{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}
	web := g.start(t, "web", goCNIContainer{Ports: []portMapping{everywhere, {HostPort: 8081, ContainerPort: 80, Protocol: "tcp", HostIP: netlab.HostIPv4}}})
	other := g.start(t, "other", goCNIContainer{})
	g.checkPublished(t, "8080")
	for _, port := range []string{"8080", "8081"} {
		for _, from := range []netlab.Namespace{g.outside.Namespace, g.Namespace, other.pod.Namespace, web.pod.Namespace} {
			checkPage(t, from, netlab.HostIPv4+":"+port)
		}
	}
	if page, err := fetch(g.Namespace, "127.0.0.1:8081", silence); err == nil {
		t.Errorf("a port that is published on %s answers on 127.0.0.1: %q", netlab.HostIPv4, page)
	}

	pod := g.NewPod(t, "refused")
	refused := goCNIContainer{ID: pod.ID, Netns: pod.Path(), Ports: []portMapping{everywhere}}
	said := g.ask(t, goCNIRequest{Call: "setup", Containers: []goCNIContainer{refused}})[0].Error
	t.Logf("a second container with the port: %s", said)
	if !strings.Contains(said, "8080") || !strings.Contains(said, web.id) {
		t.Errorf("want the port and its owner in the error, %s", web.id)
	}
	g.call(t, "remove", refused)
	pod.Delete(t)

	other.remove(t)
	web.remove(t)
	g.checkUnpublished(t, "8080")
	g.leaves(t, fresh)
}

// TestGoCNITwoNetworks attaches containers to two networks, which go-cni calls at the same moment. The second one does not masquerade.
func TestGoCNITwoNetworks(t *testing.T) {
	tried(t, goCNI, twoNetworks)
	g := newGoCNI(t)
	const server, shopNetwork = "203.0.113.1", "10.89.0.0/24"
	g.writeFile(t, conflistDir+"/20-shop.conflist", `{"cniVersion": "1.1.0", "name": "shop", "plugins": [{"type": "bridge", "bridge": "shop0", "isGateway": true,
	  "ipam": {"type": "host-local", "ranges": [[{"subnet": "`+shopNetwork+`"}]], "routes": [{"dst": "203.0.113.0/24"}]}}]}`)
	g.outside.MustRun(t, "ip", "address", "add", server, "dev", "lo")
	g.outside.AddRoute(t, shopNetwork)
	g.call(t, "load 2")
	fresh := g.Snapshot(t)
	c := g.start(t, "web", goCNIContainer{})
	g.checkContainer(t, c.container) // through the first
	checkPage(t, g.Namespace, c.interfaces["eth1"].IPConfigs[0].IP.String()+":80")
	at := g.outside.ServeTCP(t, server+":0")
	if got, err := c.pod.DialTCP(at.String(), netlab.Patience); err != nil || !strings.HasPrefix(got, "outside saw 10.89.0.") {
		t.Errorf("through the second network: %q, %v", got, err)
	}
	c.remove(t)
	g.leaves(t, fresh, "link shop0:", "qdisc shop0:", "address shop0:", "route ipv4 10.89.0.",
		"file /var/lib/cni/networks/shop drwx", "file /var/lib/cni/networks/shop/lock ", "file /var/lib/cni/networks/shop/last_reserved_ip.0 ", "file /var/lib/cni/networks/.cnibox/shop")
}

// TestGoCNIOwnAddress gives containers addresses that they ask for in both ways that there are: as capabilities, and in CNI_ARGS.
func TestGoCNIOwnAddress(t *testing.T) {
	tried(t, goCNI, ownAddress)
	g := newGoCNI(t)
	fresh := g.Snapshot(t)
	const v4, v6, mac = "10.88.0.77", "fd00:88::77", "02:00:00:00:00:77"
	for name, c := range map[string]goCNIContainer{
		"capabilities": {Capabilities: map[string]any{"ips": []string{v4, v6}, "mac": mac}},
		"arguments":    {Args: map[string]string{"IgnoreUnknown": "1", "IP": v4, "MAC": mac}},
	} {
		c := g.start(t, name, c)
		var addresses []string
		for _, address := range c.interfaces["eth0"].IPConfigs {
			addresses = append(addresses, address.IP.String())
		}
		if !slices.Contains(addresses, v4) || c.interfaces["eth0"].Mac != mac || name == "capabilities" && !slices.Contains(addresses, v6) {
			t.Errorf("%s: addresses %q with MAC address %s", name, addresses, c.interfaces["eth0"].Mac)
		}
		if shown := c.exec(t, "ip link show eth0"); !strings.Contains(shown, mac) {
			t.Errorf("%s: want MAC address %s:\n%s", name, mac, shown)
		}
		checkPage(t, g.outside.Namespace, v4+":80")
		c.remove(t)
	}
	g.leaves(t, fresh, "file /run/cni ", "file /run/cni/tuning ") // tuning's, which reads MAC in CNI_ARGS, too
}

func TestGoCNIDualStack(t *testing.T) {
	tried(t, goCNI, dualStack)
	g := newGoCNI(t)
	g.outside.AddRoute(t, podNetwork6)
	fresh := g.Snapshot(t)
	c := g.start(t, "web", goCNIContainer{Ports: []portMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}})
	published := []string{netlab.HostIPv4 + ":8080", "[" + netlab.HostIPv6 + "]:8080"}
	for _, address := range c.interfaces["eth0"].IPConfigs {
		checkPage(t, g.outside.Namespace, netip.AddrPortFrom(netip.MustParseAddr(address.IP.String()), 80).String())
	}
	for _, address := range published {
		checkPage(t, g.outside.Namespace, address)
		checkPage(t, g.Namespace, address)
	}
	for from, to := range map[string]string{netlab.HostIPv4: netlab.OutsideIPv4, netlab.HostIPv6: netlab.OutsideIPv6} {
		server := g.outside.ServeTCP(t, netip.AddrPortFrom(netip.MustParseAddr(to), 0).String())
		if got, err := c.pod.DialTCP(server.String(), netlab.Patience); err != nil || got != "outside saw "+from {
			t.Errorf("the container was answered %q, %v from outside, which should see %s", got, err, from)
		}
	}
	c.remove(t)
	for _, address := range published {
		if page, err := fetch(g.outside.Namespace, address, silence); err == nil {
			t.Errorf("http://%s/ still answers: %q", address, page)
		}
	}
	g.leaves(t, fresh)
}

func TestGoCNIFifty(t *testing.T) {
	tried(t, goCNI, fifty)
	g := newGoCNI(t)
	fresh := g.Snapshot(t)
	containers := make([]goCNIContainer, 50)
	for i := range containers {
		containers[i].Ports = []portMapping{{HostPort: 8100 + i, ContainerPort: 80, Protocol: "tcp"}}
	}
	started := g.startAll(t, "web", containers)
	addresses := map[string]bool{}
	for i, c := range started {
		addresses[c.address] = true
		g.awaitPage(t, c.address)
		checkPage(t, g.outside.Namespace, fmt.Sprint(netlab.HostIPv4, ":", 8100+i))
	}
	if len(addresses) != len(started) {
		t.Errorf("%d containers have %d addresses", len(started), len(addresses))
	}
	g.removeAll(t, started)
	g.leaves(t, fresh)
}

// TestGoCNIEdited edits and removes the network's file. containerd has go-cni read it again, and nerdctl reads it for each container; BuildKit
// never does.
func TestGoCNIEdited(t *testing.T) {
	tried(t, goCNI, edited)
	g := newGoCNI(t)
	fresh := g.Snapshot(t)
	port := []portMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}
	file := conflistFile

	t.Log("the file is edited, and read again")
	c := g.start(t, "read-again", goCNIContainer{Ports: port})
	g.checkPublished(t, "8080")
	g.writeFile(t, file, `{"cniVersion": "1.0.0", "name": "`+networkName+`", "plugins": [
	  {"type": "bridge", "bridge": "other0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}},
	  {"type": "observer", "log": "`+observerLog+`"}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`)
	g.call(t, "load 1")
	c.remove(t)
	g.checkUnpublished(t, "8080")
	g.writeFile(t, file, goCNINetwork)
	g.leaves(t, fresh)

	t.Log("the file is removed, and not read again")
	g.call(t, "load 1")
	c = g.start(t, "kept", goCNIContainer{Ports: port})
	g.run(t, "rm", file)
	c.remove(t)
	g.checkUnpublished(t, "8080")
	g.writeFile(t, file, goCNINetwork)
	g.leaves(t, fresh)

	t.Log("the file is removed, and looked for: go-cni calls no DEL. GC does when the container has ended")
	c = g.start(t, "lost", goCNIContainer{Ports: port})
	g.run(t, "rm", file)
	for _, call := range []goCNIRequest{{Call: "load", Networks: 1}, {Call: "remove", Containers: []goCNIContainer{c.asked}}} {
		said := g.ask(t, call)[0].Error
		t.Logf("%s: %s", call.Call, said)
		if said == "" {
			t.Errorf("go-cni's %s finds a network", call.Call)
		}
	}
	c.end(t)
	g.run(t, "sh", "-ec", `touch -d "5 minutes ago" /var/lib/cni/networks/web/* /var/lib/cni/results/*`)
	t.Logf("%s", g.run(t, netlab.Cnictl(t), "gc", "--apply"))
	g.checkUnpublished(t, "8080")
	g.writeFile(t, file, goCNINetwork)
	g.leaves(t, fresh)
}

func TestGoCNIStatus(t *testing.T) {
	tried(t, goCNI, asksStatus)
	g := newGoCNI(t)
	g.call(t, "status")
	fresh := g.Snapshot(t)
	for range 5 {
		g.call(t, "status")
	}
	if diff := fresh.Diff(g.Snapshot(t)); diff != "" {
		t.Errorf("STATUS has changed:\n%s", diff)
	}
	if asked := strings.Count(g.readFile(t, observerLog), "STATUS"); asked != 6 {
		t.Errorf("the plugins were asked for STATUS %d times, want 6", asked)
	}
	g.run(t, "mv", netlab.PluginDir, netlab.PluginDir+".away")
	said := g.ask(t, goCNIRequest{Call: "status"})[0].Error
	t.Logf("without plugins: %s", said)
	if !strings.Contains(said, "bridge") {
		t.Error("ready without plugins")
	}
	g.run(t, "mv", netlab.PluginDir+".away", netlab.PluginDir)
	g.call(t, "status")
}
