package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/test/netlab"
)

// chainConf is the network demo as one entry, for calls by plain exec.
const chainConf = `{"cniVersion":"1.1.0","name":"demo","type":"chain","capabilities":{"portMappings":true},"plugins":[
	{"type":"bridge","bridge":"demo0","isDefaultGateway":true,"ipMasq":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]]}},
	{"type":"tuning","sysctl":{"net.ipv4.conf.IFNAME.log_martians":"1"}},
	{"type":"portmap","capabilities":{"portMappings":true}}]}`

// flannelChain is a network of flannel as one entry.
const flannelChain = `{"cniVersion":"1.1.0","name":"demo","type":"chain","capabilities":{"portMappings":true},"plugins":[
	{"type":"flannel","delegate":{"bridge":"demo0","hairpinMode":true,"isDefaultGateway":true}},
	{"type":"portmap","capabilities":{"portMappings":true}}]}`

// conflist is a network configuration with the plugins as they were written.
type conflist struct {
	Version string            `json:"cniVersion"`
	Name    string            `json:"name"`
	Plugins []json.RawMessage `json:"plugins"`
}

func parseList(t *testing.T, text string) conflist {
	t.Helper()
	var list conflist
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return list
}

func (c conflist) String() string {
	text, _ := json.Marshal(c)
	return string(text)
}

// flat returns the list with the plugins of its chains in their places.
func (c conflist) flat(t *testing.T) conflist {
	t.Helper()
	var plugins []json.RawMessage
	for _, p := range c.Plugins {
		var entry struct {
			Type    string
			Plugins []json.RawMessage
		}
		if err := json.Unmarshal(p, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Type == "chain" {
			plugins = append(plugins, entry.Plugins...)
			continue
		}
		plugins = append(plugins, p)
	}
	c.Plugins = plugins
	return c
}

// chained returns a flat list with all plugins in one chain.
func (c conflist) chained(t *testing.T) conflist {
	t.Helper()
	capabilities := map[string]bool{}
	for _, p := range c.Plugins {
		var entry struct{ Capabilities map[string]bool }
		if err := json.Unmarshal(p, &entry); err != nil {
			t.Fatal(err)
		}
		maps.Copy(capabilities, entry.Capabilities)
	}
	entry, err := json.Marshal(map[string]any{"type": "chain", "capabilities": capabilities, "plugins": c.Plugins})
	if err != nil {
		t.Fatal(err)
	}
	c.Plugins = []json.RawMessage{entry}
	return c
}

// examples returns the network configurations of the documentation, by page and
// network.
func examples(t *testing.T) map[string]conflist {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages found", err)
	}
	block := regexp.MustCompile("(?s)```json\n(.*?)```")
	lists := map[string]conflist{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range block.FindAllStringSubmatch(string(text), -1) {
			if list := parseList(t, m[1]); list.Plugins != nil {
				lists[fmt.Sprintf("%s/%s-%d", strings.TrimSuffix(strings.TrimPrefix(page, "../../docs/"), ".md"), list.Name, i)] = list
			}
		}
	}
	return lists
}

// recorder keeps what the last plugin printed in ADD.
type recorder struct {
	*invoke.DefaultExec
	printed string
	calls   int
}

func (r *recorder) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, err := r.DefaultExec.ExecPlugin(ctx, path, stdin, environ)
	r.calls++
	if slices.Contains(environ, "CNI_COMMAND=ADD") {
		r.printed = string(out)
	}
	return out, err
}

// makeBridges makes the bridges that a flat list names. Left to the plugin they
// would get random MAC addresses, and no two nodes have the same results.
func (c conflist) makeBridges(t *testing.T, host *netlab.Host) {
	t.Helper()
	for i, p := range c.Plugins {
		var entry struct {
			Type, Bridge string
			VlanTrunk    []any
			Delegate     struct{ Type, Bridge string }
		}
		if err := json.Unmarshal(p, &entry); err != nil {
			t.Fatal(err)
		}
		name := cmp.Or(entry.Bridge, entry.Delegate.Bridge)
		if name == "" && (entry.Type == "bridge" || entry.Type == "flannel" && cmp.Or(entry.Delegate.Type, "bridge") == "bridge") {
			name = "cni0" // unless the configuration names one
		}
		if name != "" {
			args := []string{"link", "add", name, "address", fmt.Sprintf("02:00:00:00:00:%02x", i), "type", "bridge"}
			if entry.VlanTrunk != nil {
				args = append(args, "vlan_filtering", "1") // which the plugin wants of a bridge that is there
			}
			host.MustRun(t, "ip", args...)
		}
	}
}

// life is what is seen of an attachment from ADD to DEL.
type life struct {
	printed    string           // by the last plugin in ADD
	calls      int              // of plugins, in all
	host, pod  *netlab.Snapshot // after ADD
	left, bare *netlab.Snapshot // after DEL
}

// live has libcni attach, check and detach a container.
func live(t *testing.T, list conflist, caps map[string]any) life {
	t.Helper()
	host, outside := node(t)
	list.flat(t).makeBridges(t, host)
	host.MustRun(t, "ip", "link", "set", netlab.UplinkName, "address", "02:00:00:00:01:00") // which links on it take
	spareDevice(t, host, list.String())
	serveDHCP(t, host, outside, list.String())
	serveContiv(t, host, list.String())
	pod := host.NewPod(t, "web")
	rec := &recorder{DefaultExec: &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}, PluginDecoder: version.PluginDecoder{}}}
	network, err := libcni.NetworkConfFromBytes([]byte(list.String()))
	if err != nil {
		t.Fatal(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{netlab.PluginDir}, netlab.CacheDir, rec)
	rt := asPod(pod.RuntimeConf(caps))
	call := func(what string, f func() error) {
		t.Helper()
		var err error
		host.Do(func() { err = f() })
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, list)
		}
	}
	ctx := context.Background()
	var l life
	call("ADD", func() error { _, err := cni.AddNetworkList(ctx, network, rt); return err })
	l.printed, l.host, l.pod = rec.printed, host.Snapshot(t), pod.Snapshot(t)
	if list.Version >= "0.4.0" {
		call("CHECK", func() error { return cni.CheckNetworkList(ctx, network, rt) })
	}
	call("STATUS", func() error { return cni.GetStatusNetworkList(ctx, network) })
	call("GC", func() error {
		return cni.GCNetworkList(ctx, network, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: pod.ID, IfName: "eth0"}}})
	})
	call("DEL", func() error { return cni.DelNetworkList(ctx, network, rt) })
	l.left, l.bare, l.calls = host.Snapshot(t), pod.Snapshot(t), rec.calls
	return l
}

// TestChainIsTheSame runs each example of the documentation, and the network
// demo in other versions, as entries of their own and as one chain: the result
// is the same to the byte, and so is what is on the node after ADD and DEL.
func TestChainIsTheSame(t *testing.T) {
	t.Parallel()
	lists := examples(t)
	for _, version := range []string{"0.2.0", "0.3.1", "0.4.0", "1.0.0"} {
		list := parseList(t, demo)
		list.Version = version
		lists["demo/"+version] = list
	}
	for i, name := range slices.Sorted(maps.Keys(lists)) {
		if netlab.LeftOut(t, i, 4) {
			continue
		}
		list := lists[name]
		if strings.Contains(list.String(), `"vlan":`) {
			continue // the gateway of a bridge's VLAN has a random MAC address
		}
		if strings.Contains(list.String(), `"etcd"`) {
			continue // it hands out addresses at random
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needLinks(t, list.String())
			caps := ports("8080:80/tcp", "5353:53/udp")
			flat := list.flat(t)
			plain, chain := live(t, flat, caps), live(t, flat.chained(t), caps)
			if plain.printed != chain.printed {
				t.Errorf("result\n%s\nwithout the chain\n%s", chain.printed, plain.printed)
			}
			verbs := plain.calls / len(flat.Plugins)
			if chain.calls != verbs {
				t.Errorf("%d processes, want %d", chain.calls, verbs)
			}
			for _, s := range []struct {
				what         string
				plain, chain *netlab.Snapshot
			}{
				{"the host after ADD", plain.host, chain.host}, {"the pod after ADD", plain.pod, chain.pod},
				{"the host after DEL", plain.left, chain.left}, {"the pod after DEL", plain.bare, chain.bare},
			} {
				// libcni's cache holds the configuration, host-local's index, dhcp's leases and contivk8s' notes a time, the notes of host-device and of all
				// main plugins the kernel's numbers of the device and the namespace.
				diff := s.plain.Diff(s.chain, "file /var/lib/cni/results/", "file /var/lib/cni/networks/.cnibox/", "link uplink0", "mount /run/netns/",
					"file /run/cni/dhcp.leases/", "file /run/cnibox/host-device/", "file /var/lib/cni/contivk8s/", "file /var/lib/cni/cnibox/")
				if diff != "" {
					t.Errorf("%s, -plain +chain:\n%s", s.what, diff)
				}
			}
		})
	}
}

// TestOneExecPerChain traces all verbs: nothing but the chain itself is
// executed.
func TestOneExecPerChain(t *testing.T) {
	t.Parallel()
	for name, chain := range map[string]string{"bridge": chainConf, "flannel": flannelChain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			testOneExec(t, host, chain)
		})
		for way, flags := range map[string]string{"symbolic links": "-sf", "hard links": "-f"} {
			t.Run(name+" under other names, by "+way, func(t *testing.T) {
				t.Parallel()
				host, _ := node(t)
				file := filepath.Join(netlab.PluginDir, "cnibox")
				host.MustRun(t, "cp", "--remove-destination", netlab.Cnibox(t), file)
				for _, name := range []string{"chain", "cnv-bridge", "cnv-host-local", "cnv-tuning", "cnv-portmap", "cnv-flannel"} {
					host.MustRun(t, "ln", flags, file, filepath.Join(netlab.PluginDir, name))
				}
				renamed := strings.NewReplacer(`"type":"chain"`, `"type":"chain"`, `"type":"`, `"type":"cnv-`,
					`"delegate":{`, `"ipam":{"type":"cnv-host-local"},"delegate":{"type":"cnv-bridge",`)
				testOneExec(t, host, renamed.Replace(chain))
			})
		}
	}
}

func testOneExec(t *testing.T, host *netlab.Host, chain string) {
	pod := host.NewPod(t, "web")
	config := with(t, chain, "runtimeConfig", allPorts)
	valid := []map[string]string{{"containerID": pod.ID, "ifname": "eth0"}}
	result := ""
	for _, command := range []string{"STATUS", "ADD", "CHECK", "GC", "DEL"} {
		call := pod.Call(command, config)
		switch command {
		case "GC":
			call.Config = with(t, chain, "cni.dev/valid-attachments", valid)
		case "CHECK", "DEL":
			call.Config = with(t, config, "prevResult", netlab.PluginResult{Stdout: result}.Map(t))
		}
		trace := filepath.Join(t.TempDir(), "trace")
		cmd := host.PluginCommand(t, "chain", call)
		strace := host.Command("strace", append([]string{"-f", "-qq", "-e", "trace=execve", "-o", trace, cmd.Path}, cmd.Args[1:]...)...)
		strace.Env, strace.Stdin = cmd.Env, cmd.Stdin
		out, err := host.Output(strace)
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		if command == "ADD" {
			result = out
		}
		text, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		if n := executed(string(text)); n != 1 {
			t.Errorf("%s executes %d programs, want itself only (DEL a second time, for the kernel's part):\n%s", command, n, text)
		}
	}
}

// TestKilledChain kills an ADD before each message it sends to the kernel. The
// DEL that follows has to remove whatever is there.
func TestKilledChain(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	list := parseList(t, demo).chained(t).String()
	warm(t, host, list)
	pod := host.NewPod(t, "web")
	before, inside := host.Snapshot(t), pod.Snapshot(t)
	config := with(t, chainConf, "runtimeConfig", allPorts)
	for n := 1; ; n++ {
		if n > 100 {
			t.Fatal("killed at 100 messages, and no end")
		}
		ended := killBefore(t, host, "chain", pod.Call("ADD", config), n)
		if r := host.Exec(t, "chain", pod.Call("DEL", config)); r.ExitCode != 0 {
			t.Errorf("DEL after a kill before message %d: %v", n, r)
		}
		if left := before.Diff(host.Snapshot(t), storeFiles...) + inside.Diff(pod.Snapshot(t), "sysctl"); left != "" {
			t.Errorf("killed before message %d, DEL left:\n%s", n, left)
		}
		if ended {
			t.Logf("killed before each of %d messages", n-1)
			return
		}
	}
}
