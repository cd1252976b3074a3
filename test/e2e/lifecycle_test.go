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
		{"DEL twice", func(t *testing.T, host *netlab.Host, c *container) {
			detach(t, host, demo, c, allPorts)
			detach(t, host, demo, c, allPorts)
		}},
		{"namespace gone", func(t *testing.T, host *netlab.Host, c *container) {
			c.Delete(t)
			detach(t, host, demo, c, allPorts)
		}},
		{"namespace about to go", func(t *testing.T, host *netlab.Host, c *container) {
			wait := c.BeginDelete(t)
			detach(t, host, demo, c, allPorts)
			wait()
		}},
		{"a plain file where the namespace was", func(t *testing.T, host *netlab.Host, c *container) {
			c.DeleteKeepFile(t)
			detach(t, host, demo, c, allPorts)
		}},
		{"another namespace at the path", func(t *testing.T, host *netlab.Host, c *container) {
			c.Replace(t)
			detach(t, host, demo, c, allPorts)
		}},
		{"no netns, no prevResult, no runtimeConfig", func(t *testing.T, host *netlab.Host, c *container) {
			delBare(t, host, c, "")
		}},
		{"netns, no prevResult, no runtimeConfig", func(t *testing.T, host *netlab.Host, c *container) {
			delBare(t, host, c, c.Path())
		}},
		{"the host's own namespace", func(t *testing.T, host *netlab.Host, c *container) {
			delBare(t, host, c, host.NetnsPath())
		}},
		{"configuration broken since", func(t *testing.T, host *netlab.Host, c *container) {
			broken := strings.NewReplacer(`"isDefaultGateway":true`, `"isDefaultGateway":"what"`, `"subnet":"10.88.0.0/24"`, `"subnet":12`, `"ipMasq":true`, `"mtu":"x"`)
			for plugin, config := range map[string]string{
				"portmap": `{"cniVersion":"1.1.0","name":"demo","type":"portmap","backend":"none","snat":5,"prevResult":{"ips":"none"}}`,
				"tuning":  `{"cniVersion":"1.1.0","name":"demo","type":"tuning","sysctl":{"net.a":1},"mtu":"x"}`,
				"bridge":  broken.Replace(bridgeConf),
			} {
				if r := host.Exec(t, plugin, c.Call("DEL", config)); r.ExitCode != 0 {
					t.Errorf("DEL of %s: %v", plugin, r)
				}
			}
		}},
		{"GC with no attachment valid", func(t *testing.T, host *netlab.Host, c *container) {
			// Not through libcni, which would call DEL for what it has in its cache.
			for plugin, config := range map[string]string{"portmap": portmapConf, "tuning": tuningConf, "bridge": bridgeConf} {
				call := netlab.PluginCall{Command: "GC", Path: netlab.PluginDir, Config: with(t, config, "cni.dev/valid-attachments", []any{})}
				if r := host.Exec(t, plugin, call); r.ExitCode != 0 {
					t.Errorf("GC of %s: %v", plugin, r)
				}
			}
			warm(t, host, demo) // GC has taken the subnets' empty sets away too
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			leavesNothing(t, demo, c.del)
		})
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

// delBare calls DEL with as little as a runtime may send.
func delBare(t *testing.T, host *netlab.Host, c *container, netns string) {
	t.Helper()
	for _, step := range []struct{ plugin, config string }{{"portmap", portmapConf}, {"tuning", tuningConf}, {"bridge", bridgeConf}} {
		call := c.Call("DEL", step.config)
		call.Netns = netns
		if r := host.Exec(t, step.plugin, call); r.ExitCode != 0 || r.Stdout != "" {
			t.Errorf("DEL of %s: %v", step.plugin, r)
		}
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

// TestDelWithoutAdd changes nothing and is no error.
func TestDelWithoutAdd(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	pod := host.NewPod(t, "never")
	before := host.Snapshot(t)
	inside := pod.Snapshot(t)
	for _, step := range []struct{ plugin, config string }{
		{"portmap", portmapConf}, {"tuning", tuningConf}, {"bridge", bridgeConf}, {"loopback", `{"cniVersion":"1.1.0","name":"lo","type":"loopback"}`},
	} {
		if r := host.Exec(t, step.plugin, pod.Call("DEL", step.config)); r.ExitCode != 0 || r.Stdout != "" {
			t.Errorf("DEL of %s: %v", step.plugin, r)
		}
	}
	if diff := before.Diff(host.Snapshot(t)); diff != "" {
		t.Errorf("a DEL without ADD changed the host:\n%s", diff)
	}
	if diff := inside.Diff(pod.Snapshot(t)); diff != "" {
		t.Errorf("a DEL without ADD changed the pod:\n%s", diff)
	}
}

// TestSecondAdd of the same attachment fails, and harms nothing.
func TestSecondAdd(t *testing.T) {
	t.Parallel()
	for name, ipam := range map[string]string{
		"host-local": `{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}]]}`,
		"static":     `{"type":"static","addresses":[{"address":"10.88.0.9/24","gateway":"10.88.0.1"}]}`,
		"none":       `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"demo","type":"bridge","bridge":"demo0","isGateway":true,"ipMasq":true,"ipam":%s}`, ipam)
			pod := host.NewPod(t, "web")
			if r := host.Exec(t, "bridge", pod.Call("ADD", conf)); r.ExitCode != 0 {
				t.Fatal(r)
			}
			before, inside := host.Snapshot(t), pod.Snapshot(t)
			r := host.Exec(t, "bridge", pod.Call("ADD", conf))
			if r.Error == nil || r.Error.Details == "" {
				t.Errorf("second ADD: want one error with a remedy, got %v", r)
			}
			if diff := before.Diff(host.Snapshot(t)); diff != "" {
				t.Errorf("the second ADD changed the host:\n%s", diff)
			}
			if diff := inside.Diff(pod.Snapshot(t)); diff != "" {
				t.Errorf("the second ADD changed the pod:\n%s", diff)
			}
		})
	}
}

// TestCheck passes after ADD and finds what was changed since.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		harm func(t *testing.T, host *netlab.Host, c *container)
		says string // part of the error
	}{
		{"nothing", func(*testing.T, *netlab.Host, *container) {}, ""},
		{"address removed", func(t *testing.T, _ *netlab.Host, c *container) {
			c.MustRun(t, "ip", "address", "del", c.v4.String()+"/24", "dev", "eth0")
		}, "lacks the address"},
		{"default route removed", func(t *testing.T, _ *netlab.Host, c *container) {
			c.MustRun(t, "ip", "route", "del", "default")
		}, "lacks the route"},
		{"v6 default route removed", func(t *testing.T, _ *netlab.Host, c *container) {
			c.MustRun(t, "ip", "-6", "route", "del", "default")
		}, "lacks the route"},
		{"MAC address changed", func(t *testing.T, _ *netlab.Host, c *container) {
			c.MustRun(t, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:99")
		}, "MAC address"},
		{"taken off the bridge", func(t *testing.T, host *netlab.Host, c *container) {
			host.MustRun(t, "ip", "link", "set", c.result.Interfaces[1].Name, "nomaster")
		}, "not in bridge"},
		{"interface removed", func(t *testing.T, _ *netlab.Host, c *container) {
			c.MustRun(t, "ip", "link", "del", "eth0")
		}, "eth0"},
		{"sysctl changed", func(t *testing.T, _ *netlab.Host, c *container) {
			c.MustRun(t, "sysctl", "-qw", "net.ipv4.conf.eth0.log_martians=0")
		}, "log_martians"},
		{"rules flushed", func(t *testing.T, host *netlab.Host, _ *container) {
			host.MustRun(t, "nft", "flush", "ruleset")
		}, ""},
		{"lease removed", func(t *testing.T, host *netlab.Host, c *container) {
			host.MustRun(t, "rm", "/var/lib/cni/networks/demo/"+c.v4.String())
		}, "10.88.0."},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			pod := attach(t, host, demo, "web", allPorts)
			c.harm(t, host, pod)
			before, inside := host.Snapshot(t), pod.Snapshot(t)
			err := host.CheckList(demo, pod.RuntimeConf(allPorts))
			if c.name == "nothing" {
				if err != nil {
					t.Fatalf("CHECK after ADD: %v", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("CHECK says %v, want %q", err, c.says)
			}
			if diff := before.Diff(host.Snapshot(t)) + inside.Diff(pod.Snapshot(t)); diff != "" {
				t.Errorf("CHECK changed something:\n%s", diff)
			}
		})
	}
}

// TestGC keeps what is valid, and removes the rest of this network only.
func TestGC(t *testing.T) {
	t.Parallel()
	host, outside := node(t)
	second := strings.NewReplacer(`"demo"`, `"second"`, "10.88.0", "10.99.0", "fd00:88", "fd00:99").Replace(demo) // the same bridge
	second = strings.Replace(second, `"bridge": "demo0"`, `"bridge": "second0"`, 1)
	keep := attach(t, host, demo, "keep", ports("8080:80/tcp"))
	lost := attach(t, host, demo, "lost", ports("8081:80/tcp"))
	foreign := attach(t, host, second, "foreign", ports("8082:80/tcp"))
	for _, c := range []*container{keep, lost, foreign} {
		c.ServeTCP(t, ":80")
	}
	list := []any{map[string]string{"containerID": keep.ID, "ifname": "eth0"}}
	gc := func(key string, value any) {
		t.Helper()
		for plugin, config := range map[string]string{"portmap": portmapConf, "tuning": tuningConf, "bridge": bridgeConf} {
			if key != "" {
				config = with(t, config, key, value)
			}
			if r := host.Exec(t, plugin, netlab.PluginCall{Command: "GC", Path: netlab.PluginDir, Config: config}); r.ExitCode != 0 {
				t.Fatalf("GC of %s: %v", plugin, r)
			}
		}
	}
	reach := func(port string, want string) {
		t.Helper()
		wait := timeout
		if want == "" {
			wait = refusal
		}
		reply, err := outside.DialTCP(netlab.HostIPv4+":"+port, wait)
		if want == "" && err == nil || want != "" && !strings.HasPrefix(reply, want) {
			t.Errorf("port %s: %q %v, want %q", port, reply, err, want)
		}
	}
	before := host.Snapshot(t)
	gc("", nil)
	gc("cni.dev/valid-attachments", nil)
	if diff := before.Diff(host.Snapshot(t)); diff != "" {
		t.Errorf("GC without a list removed:\n%s", diff)
	}
	gc("cni.dev/attachments", list)
	reach("8080", "keep saw")
	reach("8081", "")
	reach("8082", "foreign saw")
	if files := host.MustRun(t, "sh", "-c", "grep -l "+lost.ID+" -r /var/lib/cni/networks || true"); files != "" {
		t.Errorf("GC left leases of the lost container: %s", files)
	}
	gc("cni.dev/valid-attachments", []any{})
	reach("8080", "")
	reach("8082", "foreign saw")
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

// TestStatus is nil for a network that works.
func TestStatus(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	before := host.Snapshot(t)
	if err := host.StatusList(demo); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	if diff := before.Diff(host.Snapshot(t)); diff != "" {
		t.Errorf("STATUS changed something:\n%s", diff)
	}
	host.MustRun(t, "ip", "link", "add", "demo0", "type", "veth", "peer", "name", "x")
	if err := host.StatusList(demo); err == nil || !strings.Contains(err.Error(), "not a bridge") {
		t.Errorf("STATUS with a veth called as the bridge: %v", err)
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
		reply, err := outside.DialTCP(fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i), timeout)
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
