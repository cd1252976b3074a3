package runtimes

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// Networks that podman makes.
const (
	shop = "--subnet 10.89.0.0/24 shop"
	farm = "--subnet 10.90.0.0/24 farm"
	dual = "--ipv6 --subnet 10.91.0.0/24 --subnet fd00:91::/64 dual"
)

// TestPodmanTwoNetworks attaches a container to two networks, then detaches it from one and attaches it to another, while it runs.
func TestPodmanTwoNetworks(t *testing.T) {
	tried(t, podman, twoNetworks)
	p := newPodmanNode(t, shop, farm)
	p.kept = append(p.kept, "file /run/cnibox/repair.lock ")
	// One that runs on each network.
	peers := map[string]container{}
	for _, network := range []string{networkName, "shop", "farm"} {
		peers[network] = p.podmanRun(t, "on-"+network, "--network", network)
		p.awaitPage(t, peers[network].address)
	}
	c := p.podmanRun(t, "both", "--network", "shop", "--network", networkName, "--publish", "8080:80")
	checkOn := func(networks ...string) {
		t.Helper()
		for _, network := range networks {
			pageFrom(t, c, peers[network].address, 80)
			// The peer sees the container at an address of the network.
			pageFrom(t, peers[network], p.podmanAddress(t, "both", network), 80)
		}
		if got := strings.Count(c.exec(t, "ls /sys/class/net"), "eth"); got != len(networks) {
			t.Errorf("the container has %d links on networks, want %d", got, len(networks))
		}
		p.checkReaches(t, c, netlab.OutsideIPv4, netlab.HostIPv4)
		p.checkPublished(t, "8080")
	}
	p.awaitPage(t, c.address)
	checkOn("shop", networkName)
	// If the network that is left is the one that has the port, repair gives it to the other one (docs/plugins/portmap.md).
	leave := func(network string) {
		t.Helper()
		p.run(t, "podman", "network", "disconnect", network, "both")
		t.Logf("%s", p.run(t, netlab.Cnictl(t), "repair"))
	}
	leave("shop")
	checkOn(networkName)
	p.run(t, "podman", "network", "connect", "farm", "both")
	checkOn("farm", networkName)
	leave(networkName)
	checkOn("farm")
	p.run(t, "podman", "network", "connect", "--ip", "10.89.0.77", "shop", "both")
	checkOn("farm", "shop")
	if got := p.podmanAddress(t, "both", "shop"); got != "10.89.0.77" {
		t.Errorf("the address on shop is %s", got)
	}
	c.remove(t)
	p.checkUnpublished(t, "8080")
	for _, peer := range peers {
		peer.remove(t)
	}
	p.checkNothingLeft(t)
}

// podmanAddress returns the address of a container on a network.
func (p *podmanNode) podmanAddress(t *testing.T, name, network string) string {
	t.Helper()
	return p.run(t, "podman", "inspect", "--format", `{{(index .NetworkSettings.Networks "`+network+`").IPAddress}}`, name)
}

// TestPodmanAddress chooses the address and the MAC address of a container, on a network of ours and on one of podman's.
func TestPodmanAddress(t *testing.T) {
	tried(t, podman, ownAddress)
	p := newPodmanNode(t, shop)
	p.kept = append(p.kept, "file /run/cni ", "file /run/cni/tuning ") // for MAC addresses
	for network, address := range map[string]string{networkName: "10.88.0.77", "shop": "10.89.0.77"} {
		const mac = "02:11:22:33:44:55"
		options := []string{"--network", network, "--ip", address, "--mac-address", mac}
		for range 2 { // it is free again after the first
			c := p.podmanRun(t, "chosen", options...)
			p.awaitPage(t, address)
			if got := c.exec(t, "ip address show eth0"); c.address != address || !strings.Contains(got, " "+address+"/24 ") || !strings.Contains(got, " "+mac+" ") {
				t.Errorf("podman says that the address is %s, want %s and %s:\n%s", c.address, address, mac, got)
			}
			_, err := p.Output(exec.Command("podman", podmanRunArgs("late", options...)...))
			t.Logf("an address in use: %v", err)
			if err == nil || !strings.Contains(err.Error(), c.id) {
				t.Errorf("%s is in use, and podman run ended with %v; want an error that names %s", address, err, c.id)
			}
			p.run(t, "podman", "rm", "--force", "late")
			checkPage(t, p.Namespace, address+":80")
			c.remove(t)
		}
	}
	p.checkNothingLeft(t)
}

// TestPodmanDualStack runs a container on a network with IPv4 and IPv6.
func TestPodmanDualStack(t *testing.T) {
	tried(t, podman, dualStack)
	p := newPodmanNode(t, dual)
	p.outside.AddRoute(t, "10.91.0.0/24")
	p.outside.AddRoute(t, "fd00:91::/64")
	web := p.podmanRun(t, "web", "--network", "dual", "--publish", "8080:80", "--publish", "["+netlab.HostIPv6+"]:8081:80")
	other := p.podmanRun(t, "other", "--network", "dual")
	p.awaitPage(t, web.address)
	addresses := p.podmanAddresses(t, "web")
	if len(addresses) != 2 {
		t.Fatalf("the addresses are %q, want two", addresses)
	}
	p.checkPublished(t, "8080")
	for i, side := range []struct{ node, outside string }{{netlab.HostIPv4, netlab.OutsideIPv4}, {netlab.HostIPv6, netlab.OutsideIPv6}} {
		for _, from := range []netlab.Namespace{p.Namespace, p.outside.Namespace} {
			checkPage(t, from, net.JoinHostPort(addresses[i], "80"))
			checkPage(t, from, net.JoinHostPort(side.node, "8080"))
		}
		for _, from := range []container{web, other} {
			pageFrom(t, from, addresses[i], 80)
			pageFrom(t, from, side.node, 8080)
		}
		p.checkReaches(t, web, side.outside, side.node)
	}
	checkPage(t, p.outside.Namespace, "["+netlab.HostIPv6+"]:8081")
	checkNoPage(t, p.outside.Namespace, netlab.HostIPv4+":8081")
	web.remove(t)
	p.checkUnpublished(t, "8080")
	checkNoPage(t, p.outside.Namespace, "["+netlab.HostIPv6+"]:8080")
	other.remove(t)
	p.checkNothingLeft(t)
}
