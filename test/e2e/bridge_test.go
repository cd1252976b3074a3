package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// lan returns a bridge configuration with more keys, such as `"mtu":1400,`.
func lan(keys, ipam string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"lan","type":"bridge","bridge":"lan0",%s"ipam":%s}`, keys, ipam)
}

const (
	oneAddress = `{"type":"static","addresses":[{"address":"10.44.0.2/24","gateway":"10.44.0.1"},{"address":"fd00:44::2/64","gateway":"fd00:44::1"}]}`
	aRange     = `{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]]}`
)

// TestBridgeKeys attaches with each key and looks at what it did.
func TestBridgeKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config string
		check  func(t *testing.T, host *netlab.Host, pod *netlab.Pod, end string)
	}{
		{"mtu", lan(`"mtu":1400,`, aRange), func(t *testing.T, host *netlab.Host, pod *netlab.Pod, end string) {
			shows(t, pod.MustRun(t, "ip", "link", "show", "eth0"), "mtu 1400")
			shows(t, host.MustRun(t, "ip", "link", "show", end), "mtu 1400")
			shows(t, host.MustRun(t, "ip", "link", "show", "lan0"), "mtu 1400")
		}},
		{"hairpinMode", lan(`"hairpinMode":true,`, aRange), func(t *testing.T, host *netlab.Host, _ *netlab.Pod, end string) {
			shows(t, host.MustRun(t, "ip", "-d", "link", "show", end), "hairpin on", "isolated off")
		}},
		{"portIsolation", lan(`"portIsolation":true,`, aRange), func(t *testing.T, host *netlab.Host, _ *netlab.Pod, end string) {
			shows(t, host.MustRun(t, "ip", "-d", "link", "show", end), "hairpin off", "isolated on")
		}},
		{"promiscMode", lan(`"promiscMode":true,`, aRange), func(t *testing.T, host *netlab.Host, _ *netlab.Pod, _ string) {
			shows(t, host.MustRun(t, "ip", "-d", "link", "show", "lan0"), "PROMISC")
		}},
		{"disableContainerInterface", lan(`"disableContainerInterface":true,`, `{}`), func(t *testing.T, _ *netlab.Host, pod *netlab.Pod, _ string) {
			shows(t, pod.MustRun(t, "ip", "link", "show", "eth0"), "state DOWN")
		}},
		{"no gateway", lan(``, aRange), func(t *testing.T, host *netlab.Host, pod *netlab.Pod, _ string) {
			if out := host.MustRun(t, "ip", "-o", "address", "show", "dev", "lan0", "scope", "global"); out != "" {
				t.Errorf("the bridge has addresses: %s", out)
			}
			if out := pod.MustRun(t, "ip", "route", "show", "default"); out != "" {
				t.Errorf("the container has a default route: %s", out)
			}
		}},
		{"isGateway", lan(`"isGateway":true,`, aRange), func(t *testing.T, host *netlab.Host, pod *netlab.Pod, _ string) {
			shows(t, host.MustRun(t, "ip", "address", "show", "lan0"), "10.44.0.1/24", "fd00:44::1/64")
			shows(t, host.MustRun(t, "sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"), "ip_forward = 1", "all.forwarding = 1")
			if out := pod.MustRun(t, "ip", "route", "show", "default"); out != "" {
				t.Errorf("the container has a default route: %s", out)
			}
		}},
		{"isDefaultGateway", lan(`"isDefaultGateway":true,`, aRange), func(t *testing.T, _ *netlab.Host, pod *netlab.Pod, _ string) {
			shows(t, pod.MustRun(t, "ip", "route"), "default via 10.44.0.1")
			shows(t, pod.MustRun(t, "ip", "-6", "route"), "default via fd00:44::1")
		}},
		{"isDefaultGateway and a default route from IPAM",
			lan(`"isDefaultGateway":true,`, strings.Replace(aRange, `"ranges"`, `"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}],"ranges"`, 1)),
			func(t *testing.T, _ *netlab.Host, pod *netlab.Pod, _ string) {
				shows(t, pod.MustRun(t, "ip", "route"), "default via 10.44.0.1")
				shows(t, pod.MustRun(t, "ip", "-6", "route"), "default via fd00:44::1")
			}},
		{"enabledad", lan(`"enabledad":true,"isGateway":true,`, aRange), func(t *testing.T, _ *netlab.Host, pod *netlab.Pod, _ string) {
			if out := pod.MustRun(t, "ip", "-6", "address", "show", "dev", "eth0", "tentative"); out != "" {
				t.Errorf("addresses are still probed: %s", out)
			}
			shows(t, pod.MustRun(t, "sysctl", "net.ipv6.conf.eth0.accept_dad"), "= 1")
		}},
		{"route options", lan(`"isGateway":true,`, strings.Replace(aRange, `"ranges"`,
			`"routes":[{"dst":"10.50.0.0/16","mtu":1300,"advmss":1200,"priority":50},{"dst":"10.51.0.0/16","table":300},{"dst":"10.52.0.0/16","gw":"10.44.0.9"},{"dst":"10.53.0.0/16","scope":253}],"ranges"`, 1)),
			func(t *testing.T, _ *netlab.Host, pod *netlab.Pod, _ string) {
				routes := pod.MustRun(t, "ip", "route", "show", "table", "all")
				shows(t, routes, "10.50.0.0/16 via 10.44.0.1 dev eth0 metric 50 mtu 1300 advmss 1200", "10.51.0.0/16 via 10.44.0.1 dev eth0 table 300",
					"10.52.0.0/16 via 10.44.0.9 dev eth0", "10.53.0.0/16 dev eth0 scope link")
			}},
		{"two subnets of a family", lan(`"isDefaultGateway":true,"ipMasq":true,`,
			`{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"10.45.0.0/24"}]]}`), func(t *testing.T, host *netlab.Host, pod *netlab.Pod, _ string) {
			shows(t, host.MustRun(t, "ip", "address", "show", "lan0"), "10.44.0.1/24", "10.45.0.1/24")
			shows(t, pod.MustRun(t, "ip", "address", "show", "eth0"), "10.44.0.2/24", "10.45.0.2/24")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			pod := host.NewPod(t, "web")
			r := host.Exec(t, "bridge", pod.Call("ADD", c.config))
			if r.ExitCode != 0 {
				t.Fatal(r)
			}
			c.check(t, host, pod, r.Result(t).Interfaces[1].Name)
			if check := host.Exec(t, "bridge", pod.Call("CHECK", with(t, c.config, "prevResult", r.Map(t)))); check.ExitCode != 0 {
				t.Errorf("CHECK: %v", check)
			}
			if del := host.Exec(t, "bridge", pod.Call("DEL", c.config)); del.ExitCode != 0 {
				t.Errorf("DEL: %v", del)
			}
		})
	}
}

func shows(t *testing.T, output string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("%q is not in:\n%s", part, output)
		}
	}
}

// TestBridgeResult compares the result with what the kernel has.
func TestBridgeResult(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	pod := host.NewPod(t, "web")
	config := lan(`"isGateway":true,"dns":{"nameservers":["10.44.0.53"],"search":["lab"]},"runtimeConfig":{"mac":"02:AA:00:00:00:01"},`, aRange)
	result := host.Exec(t, "bridge", pod.Call("ADD", config)).Result(t)
	if len(result.Interfaces) != 3 {
		t.Fatalf("interfaces: %v", result.Interfaces)
	}
	bridge, end, eth0 := result.Interfaces[0], result.Interfaces[1], result.Interfaces[2]
	if bridge.Name != "lan0" || bridge.Sandbox != "" || end.Sandbox != "" || eth0.Name != "eth0" || eth0.Sandbox != pod.Path() {
		t.Errorf("interfaces: %v", result.Interfaces)
	}
	if eth0.Mac != "02:aa:00:00:00:01" {
		t.Errorf("MAC address %s, want the one asked for in lower case", eth0.Mac)
	}
	shows(t, host.MustRun(t, "ip", "link", "show", bridge.Name), bridge.Mac)
	shows(t, host.MustRun(t, "ip", "-d", "link", "show", end.Name), end.Mac, "master lan0", "alias cnibox lan/"+pod.ID+"/eth0", "numtxqueues 1 ")
	shows(t, pod.MustRun(t, "ip", "link", "show", "eth0"), eth0.Mac)
	for _, ip := range result.IPs {
		if ip.Interface == nil || *ip.Interface != 2 {
			t.Errorf("address %v is of interface %v, want 2", ip.Address, ip.Interface)
		}
	}
	if len(result.DNS.Nameservers) != 1 || result.DNS.Nameservers[0] != "10.44.0.53" || len(result.DNS.Search) != 1 {
		t.Errorf("dns: %v", result.DNS)
	}
	before := host.MustRun(t, "cat", "/sys/class/net/lan0/address")
	other := host.NewPod(t, "other")
	if r := host.Exec(t, "bridge", other.Call("ADD", lan(`"isGateway":true,`, aRange))); r.ExitCode != 0 {
		t.Fatal(r)
	}
	if after := host.MustRun(t, "cat", "/sys/class/net/lan0/address"); after != before {
		t.Errorf("the bridge's MAC address changed from %s to %s", before, after)
	}
}

// TestAddressChangesHands has a container follow another one at an address that its neighbours know. They reach it at once,
// whether they were told or not: on a crowded node they are not.
func TestAddressChangesHands(t *testing.T) {
	t.Parallel()
	const known, silent, told = "0a:58:0a:2c:00:02", "arp_notify = 0", "arp_notify = 1"
	for _, c := range []struct {
		name, keys  string
		crowded     bool
		mac, notify string
	}{
		{"few links", ``, false, known, told},
		{"many links", ``, true, known, silent},
		{"many links and a MAC address that was asked for", `"runtimeConfig":{"mac":"02:aa:00:00:00:01"},`, true, "02:aa:00:00:00:01", told},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			if c.crowded {
				host.Crowd(t)
			}
			neighbour := host.NewPod(t, "neighbour")
			succeed(t, host, neighbour.Call("ADD", lan(`"isGateway":true,`, `{"type":"static","addresses":[{"address":"10.44.0.3/24"}]}`)))
			before := host.NewPod(t, "before")
			config := lan(`"isGateway":true,`, `{"type":"static","addresses":[{"address":"10.44.0.2/24"}]}`)
			succeed(t, host, before.Call("ADD", config))
			if err := neighbour.Ping("10.44.0.2", timeout); err != nil {
				t.Fatal(err)
			}
			succeed(t, host, before.Call("DEL", config))
			after := host.NewPod(t, "after")
			succeed(t, host, after.Call("ADD", strings.Replace(config, `"isGateway"`, c.keys+`"isGateway"`, 1)))
			for _, from := range []*netlab.Namespace{&neighbour.Namespace, &host.Namespace} {
				if err := from.Ping("10.44.0.2", timeout); err != nil {
					t.Errorf("from %s: %v", from.Name(), err)
				}
			}
			shows(t, after.MustRun(t, "ip", "link", "show", "eth0"), c.mac)
			shows(t, after.MustRun(t, "sysctl", "net.ipv4.conf.eth0.arp_notify"), c.notify)
		})
	}
}

// succeed makes a call of the bridge plugin.
func succeed(t *testing.T, host *netlab.Host, call netlab.PluginCall) {
	t.Helper()
	if r := host.Exec(t, "bridge", call); r.ExitCode != 0 {
		t.Fatalf("%s: %v", call.Command, r)
	}
}

// TestConflictingAddress refuses a bridge that is another network's gateway,
// and takes it over when forced to.
func TestConflictingAddress(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	host.MustRun(t, "ip", "link", "add", "lan0", "address", "02:00:00:00:00:77", "type", "bridge")
	host.MustRun(t, "ip", "address", "add", "10.9.9.1/24", "dev", "lan0")
	host.MustRun(t, "ip", "address", "add", "fd00:44::9/48", "dev", "lan0", "nodad")
	host.MustRun(t, "ip", "link", "set", "lan0", "up")
	pod := host.NewPod(t, "web")
	before, inside := host.Snapshot(t), pod.Snapshot(t)
	r := host.Exec(t, "bridge", pod.Call("ADD", lan(`"isGateway":true,"ipMasq":true,`, aRange)))
	if r.Error == nil || !strings.Contains(r.Error.Msg, "10.9.9.1/24") || !strings.Contains(r.Error.Details, "forceAddress") {
		t.Fatalf("want an error that names the address and forceAddress, got %v", r)
	}
	left := before.Diff(host.Snapshot(t), storeFiles...) + inside.Diff(pod.Snapshot(t))
	if left != "" {
		t.Errorf("the failed ADD left:\n%s", left)
	}
	if r := host.Exec(t, "bridge", pod.Call("ADD", lan(`"isGateway":true,"forceAddress":true,`, aRange))); r.ExitCode != 0 {
		t.Fatal(r)
	}
	addresses := host.MustRun(t, "ip", "address", "show", "lan0")
	shows(t, addresses, "10.44.0.1/24", "fd00:44::1/64")
	for _, gone := range []string{"10.9.9.1", "fd00:44::9"} {
		if strings.Contains(addresses, gone) {
			t.Errorf("%s is still there:\n%s", gone, addresses)
		}
	}
}

// TestDuplicateAddress finds another user of an address when asked to look.
func TestDuplicateAddress(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	first, second := host.NewPod(t, "first"), host.NewPod(t, "second")
	if r := host.Exec(t, "bridge", first.Call("ADD", lan(`"isGateway":true,`, oneAddress))); r.ExitCode != 0 {
		t.Fatal(r)
	}
	before, inside := host.Snapshot(t), second.Snapshot(t)
	r := host.Exec(t, "bridge", second.Call("ADD", lan(`"isGateway":true,"enabledad":true,`, oneAddress)))
	if r.Error == nil || !strings.Contains(r.Error.Msg, "fd00:44::2") {
		t.Errorf("want an error that names the address, got %v", r)
	}
	if left := before.Diff(host.Snapshot(t)) + inside.Diff(second.Snapshot(t), "sysctl"); left != "" {
		t.Errorf("the failed ADD left:\n%s", left)
	}
}

// TestRollback has an ADD fail at its last steps, and compares.
func TestRollback(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"gateway out of reach": lan(`"isGateway":true,"ipMasq":true,`,
			strings.Replace(aRange, `"ranges"`, `"routes":[{"dst":"10.60.0.0/16","gw":"172.31.0.1"}],"ranges"`, 1)),
		"MTU above the bridge's kind of link": lan(`"mtu":65535,"isGateway":true,`, strings.Replace(aRange, "10.44.0.0/24", "10.44.0.0/33", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			warmed := host.NewPod(t, "warm")
			good := lan(`"isGateway":true,"ipMasq":true,`, aRange)
			for _, command := range []string{"ADD", "DEL"} {
				if r := host.Exec(t, "bridge", warmed.Call(command, good)); r.ExitCode != 0 {
					t.Fatal(r)
				}
			}
			pod := host.NewPod(t, "web")
			before, inside := host.Snapshot(t), pod.Snapshot(t)
			r := host.Exec(t, "bridge", pod.Call("ADD", config))
			if r.Error == nil || r.Error.Details == "" {
				t.Errorf("want an error with a remedy, got %v", r)
			}
			left := before.Diff(host.Snapshot(t), storeFiles...) + inside.Diff(pod.Snapshot(t))
			if left != "" {
				t.Errorf("the failed ADD left:\n%s", left)
			}
		})
	}
}

// TestUnfiltered changes what the configuration asks of the packet filter between ADD and DEL: what ADD did counts,
// and the alias of the host end tells.
func TestUnfiltered(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	plain, filtered := lan(``, aRange), lan(`"ipMasq":true,"macspoofchk":true,`, aRange)
	for _, c := range []struct{ name, add, del, alias string }{
		{"filtered", filtered, plain, ""},
		{"masqueraded", lan(`"ipMasq":true,`, aRange), plain, ""},
		{"checked", lan(`"macspoofchk":true,`, aRange), plain, ""},
		{"plain", plain, filtered, " unfiltered"},
	} {
		pod := host.NewPod(t, c.name)
		end := host.Exec(t, "bridge", pod.Call("ADD", c.add)).Result(t).Interfaces[1].Name
		shows(t, host.MustRun(t, "ip", "link", "show", end), "alias cnibox lan/"+pod.ID+"/eth0"+c.alias+"\n")
		if rules := host.MustRun(t, "nft", "list", "ruleset"); strings.Contains(rules, pod.ID) == (c.alias != "") {
			t.Errorf("%s: ADD made the rules\n%s", c.name, rules)
		}
		gc := netlab.PluginCall{Command: "GC", Path: netlab.PluginDir,
			Config: with(t, c.del, "cni.dev/valid-attachments", []any{map[string]string{"containerID": pod.ID, "ifname": "eth0"}})}
		if r := host.Exec(t, "bridge", gc); r.ExitCode != 0 || len(host.Snapshot(t).Lines("link "+end)) == 0 {
			t.Errorf("%s: GC: %v, or it removed %s", c.name, r, end)
		}
		if r := host.Exec(t, "bridge", pod.Call("DEL", c.del)); r.ExitCode != 0 {
			t.Errorf("%s: DEL: %v", c.name, r)
		}
		if links, rules := host.Snapshot(t).Lines("link "+end), host.MustRun(t, "nft", "list", "ruleset"); len(links) != 0 || strings.Contains(rules, pod.ID) {
			t.Errorf("%s: DEL left %v and the rules\n%s", c.name, links, rules)
		}
		stale := host.Exec(t, "bridge", pod.Call("ADD", c.add)).Result(t).Interfaces[1].Name
		gc.Config = with(t, c.del, "cni.dev/valid-attachments", []any{})
		if r := host.Exec(t, "bridge", gc); r.ExitCode != 0 || len(host.Snapshot(t).Lines("link "+stale)) != 0 {
			t.Errorf("%s: GC: %v, or it left %s", c.name, r, stale)
		}
	}
}

// TestReferenceVeth detaches a container that the reference plugin attached:
// its host end has a random name and no alias.
func TestReferenceVeth(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	host.MustRun(t, "ip", "link", "add", "lan0", "type", "bridge")
	config := lan(``, `{}`)
	for _, c := range []struct {
		name  string
		prev  func(mac string) any
		stays bool
	}{
		{"no prevResult", func(string) any { return nil }, false},
		{"prevResult", func(mac string) any {
			return map[string]any{"cniVersion": "1.1.0", "interfaces": []any{map[string]string{"name": "eth0", "mac": mac, "sandbox": "/run/netns/x"}}}
		}, false},
	} {
		pod := host.NewPod(t, strings.ReplaceAll(c.name, " ", "-"))
		host.MustRun(t, "ip", "link", "add", "vethabcdef01", "type", "veth", "peer", "name", "eth0", "netns", pod.Name())
		host.MustRun(t, "ip", "link", "set", "vethabcdef01", "master", "lan0")
		call := config
		if prev := c.prev(strings.Fields(pod.MustRun(t, "ip", "-o", "link", "show", "eth0"))[16]); prev != nil {
			call = with(t, config, "prevResult", prev)
		}
		if r := host.Exec(t, "bridge", pod.Call("DEL", call)); r.ExitCode != 0 {
			t.Errorf("%s: %v", c.name, r)
		}
		if left := host.Snapshot(t).Lines("link vethabcdef01"); len(left) != 0 {
			t.Errorf("%s: the reference plugin's veth is left: %v", c.name, left)
		}
	}

	// A namespace whose path now belongs to another attachment is left alone.
	pod := host.NewPod(t, "reused")
	if r := host.Exec(t, "bridge", pod.Call("ADD", config)); r.ExitCode != 0 {
		t.Fatal(r)
	}
	late := pod.Call("DEL", config)
	late.ContainerID = "an-older-container"
	before := host.Snapshot(t)
	if r := host.Exec(t, "bridge", late); r.ExitCode != 0 {
		t.Error(r)
	}
	if diff := before.Diff(host.Snapshot(t)); diff != "" {
		t.Errorf("a late DEL removed what a newer attachment has:\n%s", diff)
	}
}
