package firewall

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/test/netlab"
)

// thousands is how many ports are published on a loaded node.
const thousands = 5000

// manyPorts returns so many port maps from the host port first on.
func manyPorts(first, count int) []port {
	ports := make([]port, count)
	for i := range ports {
		ports[i] = port{HostPort: first + i, ContainerPort: webPort, Protocol: "tcp"}
	}
	return ports
}

// TestThousandsAtOnce publishes all ports of a loaded node with one ADD. It
// counts them, as the kernel drops what is too much for one message without a
// word.
func TestThousandsAtOnce(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			host := newHost(t, b)
			outside := host.NewOutside(t)
			conflist := network(b, podsBridge)
			warm(t, host, conflist)
			c := &container{Pod: host.NewPod(t, "many"), caps: map[string]any{"portMappings": manyPorts(10000, thousands)}}
			before := host.Snapshot(t)
			if err := c.add(host, conflist); err != nil {
				t.Fatal(err)
			}
			tcp := protocols[0]
			c.serve(t, tcp, webPort)
			for _, f := range families {
				if got := published(t, host, b, f); got != thousands {
					t.Errorf("%s: %d ports are published, want %d", f.name, got, thousands)
				}
				for _, p := range []uint16{10000, 10000 + thousands/2, 10000 + thousands - 1} {
					tcp.ask(t, question{&outside.Namespace, at(f.host, p), "many saw " + f.outside.String()})
				}
			}
			if err := host.CheckList(conflist, c.RuntimeConf(c.caps)); err != nil {
				t.Error(err)
			}
			if err := c.del(host, conflist); err != nil {
				t.Fatal(err)
			}
			if diff := before.Diff(host.Snapshot(t), furniture(conflist)...); diff != "" {
				t.Errorf("left behind:\n%.2000s", diff)
			}
		})
	}
}

// published counts the ports that the packet filter has for a family.
func published(t testing.TB, host *netlab.Host, b backend, f family) int {
	t.Helper()
	if b.flavour != "" {
		return strings.Count(host.MustRun(t, f.iptables+"-"+b.flavour, "-t", "nat", "-S"), "-j DNAT ")
	}
	var ruleset struct {
		NFTables []struct {
			Map *struct {
				Name string
				Elem []any
			}
		}
	}
	if err := json.Unmarshal([]byte(host.MustRun(t, "nft", "-j", "list", "table", "inet", "cnibox")), &ruleset); err != nil {
		t.Fatal(err)
	}
	prefix := "ports" + strings.TrimPrefix(f.name, "v") + "_" // and the ruleset's version
	for _, object := range ruleset.NFTables {
		if object.Map != nil && strings.HasPrefix(object.Map.Name, prefix) {
			return len(object.Map.Elem)
		}
	}
	t.Fatalf("no map %s", prefix)
	return 0
}

// one is an attachment of which only portmap's part is made: of the addresses in
// the result of the plugin before, that are nobody's.
func one(b backend) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "net-cni0", "type": "portmap", "backend": "%s",
  "prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.88.99.99/16"}, {"address": "fd00:88::99:99/64"}]},
  "runtimeConfig": {"portMappings": [
    {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 5353, "containerPort": 53, "protocol": "udp"}
  ]}
}`, b.config)
}

// oneBridged is the part of the bridge in such an attachment.
func oneBridged(b backend, prevResult string) string {
	if prevResult == "" {
		prevResult = "null"
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "net-cni0", "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "%s",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}], [{"subnet": "%s"}]]}, "prevResult": %s
}`, b.config, podsBridge.subnet4, podsBridge.subnet6, prevResult)
}

// TestFlat compares what the plugins do for one more attachment on a node without
// attachments and on one with thousands of ports, which it counts: they have to make
// the same system calls, and get the same amount of data. They get another answer
// when the kernel's clock ticks while DEL lets elements expire, so that each call
// has several tries.
func TestFlat(t *testing.T) {
	t.Parallel()
	b := backends[0]
	empty, full := newHost(t, b), newHost(t, b)
	for _, host := range []*netlab.Host{empty, full} {
		warm(t, host, network(b, podsBridge))
		// Of a node with no connection at all, the stale ones are not looked for.
		host.MustRun(t, "conntrack", "-I", "-p", "udp", "-s", "192.0.2.9", "-d", "192.0.2.10", "--sport", "9", "--dport", "9", "-t", "600")
	}
	const each = 100
	for i := range thousands / each {
		attach(t, full, network(b, podsBridge), fmt.Sprintf("load-%d", i), manyPorts(10000+i*each, each)...)
	}
	for _, f := range families {
		if got := published(t, full, b, f); got != thousands {
			t.Errorf("%s: %d ports are published, want %d", f.name, got, thousands)
		}
	}
	emptyPod, fullPod := empty.NewPod(t, "one"), full.NewPod(t, "one")
	same, diffs := map[string]bool{}, map[string]string{}
	for range 10 {
		onEmpty, onFull := trace(t, b, empty, emptyPod), trace(t, b, full, fullPod)
		for call := range onEmpty {
			diffs[call] = cmp.Diff(onEmpty[call], onFull[call])
			same[call] = same[call] || diffs[call] == ""
			if !slices.ContainsFunc(onEmpty[call], func(c string) bool { return strings.HasPrefix(c, "sendto ") }) {
				t.Errorf("%s sends nothing, so that this proves nothing: %v", call, onEmpty[call])
			}
		}
		maps.DeleteFunc(diffs, func(call, _ string) bool { return same[call] })
		if len(diffs) == 0 {
			return
		}
	}
	for call, diff := range diffs {
		t.Errorf("%s makes other system calls on a loaded node (-empty +%d ports):\n%s", call, thousands, diff)
	}
}

// trace returns the system calls of each plugin and verb.
func trace(t *testing.T, b backend, host *netlab.Host, pod *netlab.Pod) map[string][]string {
	t.Helper()
	result := "" // of the bridge
	calls := map[string][]string{}
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		for _, plugin := range []string{"bridge", "portmap"} {
			config := one(b)
			if plugin == "bridge" {
				config = oneBridged(b, result)
			}
			output, systemCalls := strace(t, host, host.PluginCommand(t, plugin, pod.Call(verb, config)))
			if plugin == "bridge" && verb == "ADD" {
				result = output
			}
			calls[plugin+" "+verb] = systemCalls
		}
	}
	return calls
}

// finished matches a system call's name, whole or after an interruption, its
// result and its error.
var finished = regexp.MustCompile(`(?m)^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed>).* = (-?\d+)(?: (E\w+))?`)

// strace runs a command and returns its output and the system calls that tell of
// work, with their results, sorted: threads have no order.
func strace(t *testing.T, host *netlab.Host, cmd *exec.Cmd) (output string, calls []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls")
	traced := exec.Command("strace", "-f", "-o", file, "-e", "trace=sendto,sendmsg,recvfrom,recvmsg,openat,newfstatat,getdents64,execve", cmd.Path)
	// Whether DEL may leave a second process behind depends on what became of the last one, which a busy machine reaps late.
	traced.Env, traced.Stdin = append(cmd.Env, "CNIBOX_DETACH=never"), cmd.Stdin
	output, err := host.Output(traced)
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range finished.FindAllStringSubmatch(string(text), -1) {
		name, result, errno := match[1], match[2], match[3]
		switch {
		case strings.Contains(match[0], "/.cnibox/"): // whether others share a file of the leases' index is chance
		case errno == "EAGAIN": // how often there is nothing yet is chance
		case name == "openat" && errno == "":
			calls = append(calls, name) // the number of the file means nothing
		default:
			calls = append(calls, name+" "+result+errno)
		}
	}
	slices.Sort(calls)
	return output, calls
}
