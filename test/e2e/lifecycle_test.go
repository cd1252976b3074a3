package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/test/netlab"
)

// requests of single plugins, for calls by plain exec.
const (
	bridgeConf = `{"cniVersion":"1.1.0","name":"demo","type":"bridge","bridge":"demo0","isDefaultGateway":true,"ipMasq":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]]}}`
	portmapConf = `{"cniVersion":"1.1.0","name":"demo","type":"portmap"}`
	tuningConf  = `{"cniVersion":"1.1.0","name":"demo","type":"tuning","sysctl":{"net.ipv4.conf.IFNAME.log_martians":"1"}}`
)

var allPorts = ports("8080:80/tcp", "8081:81/tcp", "5353:53/udp", "127.0.0.1:9000:90/tcp")

// TestNothingIsLeft compares a node before an ADD and after its DEL.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		del  func(t *testing.T, host *netlab.Host, c *container)
	}{
		{"DEL", func(t *testing.T, host *netlab.Host, c *container) {
			detach(t, host, demo, c, allPorts)
		}},
		{"namespace about to go", func(t *testing.T, host *netlab.Host, c *container) {
			wait := c.BeginDelete(t)
			detach(t, host, demo, c, allPorts)
			wait()
		}},
		{"started again at the same path before its DEL", func(t *testing.T, host *netlab.Host, c *container) {
			c.Replace(t)
			startedAgain(t, host, c.Pod)
		}},
		{"started again at another path before its DEL", func(t *testing.T, host *netlab.Host, c *container) {
			c.Delete(t)
			again := host.NewPod(t, "again")
			again.ID = c.ID
			startedAgain(t, host, again)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			leavesNothing(t, demo, c.del)
		})
	}
}

// startedAgain attaches a container whose earlier namespace is gone, and detaches it.
func startedAgain(t *testing.T, host *netlab.Host, pod *netlab.Pod) {
	t.Helper()
	result, err := host.AddList(demo, pod.RuntimeConf(allPorts))
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Ping(result.IPs[0].Address.IP.String(), netlab.Patience); err != nil {
		t.Error(err)
	}
	if err := host.CheckList(demo, pod.RuntimeConf(allPorts)); err != nil {
		t.Error(err)
	}
	if err := host.DelList(demo, pod.RuntimeConf(allPorts)); err != nil {
		t.Error(err)
	}
}

// leavesNothing attaches a container and takes it away, in whichever way; the
// test fails if something is left of it.
func leavesNothing(t *testing.T, conflist string, del func(*testing.T, *netlab.Host, *container)) {
	t.Helper()
	host, _ := node(t)
	warm(t, host, conflist)
	before := host.Snapshot(t)
	pod := attach(t, host, conflist, "web", allPorts)
	if before.Diff(host.Snapshot(t)) == "" {
		t.Fatal("ADD changed nothing")
	}
	del(t, host, pod)
	left := before.Diff(host.Snapshot(t), slices.Concat(storeFiles, []string{"file /var/lib/cni/results/", "file /run/netns/", "mount /run/netns/"})...)
	if left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// with returns a configuration with one more key.
func with(t *testing.T, config, key string, value any) string {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		t.Fatal(err)
	}
	m[key] = value
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestGCByLibcni removes what libcni knows of.
func TestGCByLibcni(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	warm(t, host, demo)
	before := host.Snapshot(t)
	keep := attach(t, host, demo, "keep", allPorts)
	attach(t, host, demo, "lost", ports("7000:70/tcp"))
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: keep.ID, IfName: "eth0"}}}
	if err := host.GCList(demo, args); err != nil {
		t.Fatal(err)
	}
	if err := host.CheckList(demo, keep.RuntimeConf(allPorts)); err != nil {
		t.Errorf("CHECK of the attachment that GC had to keep: %v", err)
	}
	detach(t, host, demo, keep, allPorts)
	left := before.Diff(host.Snapshot(t), slices.Concat(storeFiles, []string{"file /run/netns/", "mount /run/netns/"})...)
	if left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// TestManyAtOnce attaches 40 pods at the same time, the node's first ones
// included, and detaches them at the same time.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const pods = 40
	host, outside := node(t)
	attached := make([]*container, pods)
	caps := func(i int) map[string]any {
		return ports(fmt.Sprintf("%d:80/tcp", 8000+i), fmt.Sprintf("%d:80/udp", 8000+i))
	}
	for i := range attached {
		attached[i] = &container{Pod: host.NewPod(t, fmt.Sprintf("pod%d", i))}
	}
	each(t, pods, func(i int) error {
		var err error
		attached[i].result, err = host.AddList(demo, attached[i].RuntimeConf(caps(i)))
		return err
	})
	if t.Failed() {
		return
	}
	seen := map[string]int{}
	for i, c := range attached {
		for _, ip := range c.result.IPs {
			if j, ok := seen[ip.Address.String()]; ok {
				t.Errorf("pods %d and %d both have %s", i, j, ip.Address.String())
			}
			seen[ip.Address.String()] = i
		}
		c.ServeTCP(t, ":80")
		want := fmt.Sprintf("pod%d saw", i)
		reply, err := outside.DialTCP(fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i), netlab.Patience)
		if err != nil || !strings.HasPrefix(reply, want) {
			t.Errorf("pod %d through its port: %q, %v", i, reply, err)
		}
	}
	rules := host.MustRun(t, "nft", "list", "table", "inet", "cnibox")
	if n := strings.Count(rules, "masquerade"); n == 0 || n > 12 {
		t.Errorf("%d rules masquerade: the ruleset was built more than once?\n%s", n, rules)
	}
	each(t, pods, func(i int) error { return host.DelList(demo, attached[i].RuntimeConf(caps(i))) })
	after := host.Snapshot(t)
	for _, line := range append(after.Lines("link veth"), after.Lines("file /var/lib/cni/results/")...) {
		t.Errorf("left behind: %s", line)
	}
	for _, c := range attached {
		if rules := host.MustRun(t, "nft", "list", "table", "inet", "cnibox"); strings.Contains(rules, c.ID) {
			t.Fatalf("elements of %s are left:\n%s", c.ID, rules)
		}
	}
}

// each calls f for 0 … n-1 at the same time.
func each(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f(i); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}()
	}
	wg.Wait()
}
