package multihost

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// TestRecipe makes sure that the network of these tests is the one that the recipe tells people to use.
func TestRecipe(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/recipes/flannel.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```json\n")
	shown, _, _ := strings.Cut(after, "```")
	var want, got bytes.Buffer
	if err := errors.Join(json.Compact(&want, []byte(conflist)), json.Compact(&got, []byte(shown))); err != nil {
		t.Fatal(err)
	}
	if want.String() != got.String() {
		t.Errorf("the recipe has\n%s\nand these tests\n%s", &got, &want)
	}
}

// TestFlannel goes through the life of a cluster.
func TestFlannel(t *testing.T) {
	for backend, mtu := range map[string]int{"vxlan": 1450, "host-gw": 1500} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, backend)
			published := map[string]any{"portMappings": []map[string]any{
				{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 8080, "containerPort": 80, "protocol": "udp"}}}
			web := c.nodes[0].add("web", published)
			client, neighbour := c.nodes[1].add("client", nil), c.nodes[1].add("neighbour", nil)
			other := c.nodes[2].add("other", nil)
			c.reachEachOther(web, client, neighbour, other)
			c.testPublishedPort(web, client)
			c.testMTU(mtu, client, web)
			c.testReboot(web, client, neighbour)
			c.testWithoutEtcd(web)
			c.del(web, other)
		})
	}
}

// testPublishedPort reaches a pod by its node, from other nodes and from a pod on one. The daemon there masquerades what leaves flannel's
// network.
func (c *cluster) testPublishedPort(web, client *pod) {
	at := web.node.address + ":8080"
	c.reaches(&c.center.Namespace, at, "web saw 172.31.7.254")
	c.reaches(&client.node.Namespace, at, "web saw "+client.node.address)
	c.reaches(&client.Namespace, at, "web saw "+client.node.address)
	c.Logf("%s is reached as %s by other machines and their pods", web.Name(), at)
}

// testMTU has a pod send the largest packet that the way to another node takes, and a larger one.
func (c *cluster) testMTU(mtu int, from, to *pod) {
	if err := from.sends(mtu, to); err != nil {
		c.Errorf("a packet of %d bytes: %v", mtu, err)
	}
	err := from.sends(mtu+1, to)
	if err == nil || !strings.Contains(err.Error(), "too long") && !strings.Contains(err.Error(), "mtu=") {
		c.Errorf("a packet of %d bytes: %v; want to be told that it is too long", mtu+1, err)
	}
	c.Logf("a packet of %d bytes passes unsplit, and one of %d does not: %v", mtu, mtu+1, err)
}

// testReboot has a node lose its link, its daemon, its pods' namespaces and what it has in /run, and come back.
func (c *cluster) testReboot(stays *pod, lost ...*pod) {
	n := lost[0].node
	n.stop()
	c.center.MustRun(c, "ip", "link", "set", n.name, "down")
	n.MustRun(c, "rm", "-r", "/run/flannel")
	for _, p := range lost {
		p.Delete(c)
	}
	if err := stays.Ping(lost[0].address, silence); err == nil {
		c.Errorf("%s still reaches %s", stays.Name(), lost[0].Name())
	}

	early := n.NewPod(c, "early")
	_, err := n.AddList(conflist, early.RuntimeConf(nil))
	var failed *types.Error
	if !errors.As(err, &failed) || failed.Code != types.ErrTryAgainLater || failed.Details == "" {
		c.Errorf("ADD on a node without a subnet: %v; want code 11", err)
	}
	c.Logf("ADD on a node without a subnet: %v", err)
	if err := n.DelList(conflist, early.RuntimeConf(nil)); err != nil {
		c.Errorf("DEL on a node without a subnet: %v", err)
	}
	c.del(lost[0])

	c.center.MustRun(c, "ip", "link", "set", n.name, "up")
	n.startDaemon()
	c.del(lost[1:]...)
	back := n.add("back", nil)
	c.reachEachOther(stays, back)
	c.del(back)
}

// testWithoutEtcd adds pods while etcd is stopped. When it is back, so is all: a node joins, and the others get to know.
func (c *cluster) testWithoutEtcd(web *pod) {
	c.stopEtcd()
	a, b := c.nodes[0].add("added", nil), c.nodes[1].add("added-too", nil)
	c.reachEachOther(web, a, b)
	c.del(a, b)
	c.Logf("pods were added and removed without etcd")
	c.startEtcd()
	late := c.join().add("late", nil)
	c.reachEachOther(web, late)
	c.del(late)
}
