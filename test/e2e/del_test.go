package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/test/netlab"
)

// mainPlugin is a plugin that makes an interface, with what its DEL is tried with.
type mainPlugin struct {
	name, keys string // of a configuration that has host-local besides, each key followed by a comma
	noIPAM     bool
	keeps      bool     // the first DEL goes by what ADD was called with
	prepare    []string // arguments of ip, on the node before all
	master     string   // a link of the node that it can't work without, if there is one
	takes      string   // a link of the node that the container takes, and that goes with the namespace, if there is one
	needs      []netlab.Feature
}

// mains are all of them.
var mains = []mainPlugin{
	{name: "bridge", keys: `"bridge":"demo0","isDefaultGateway":true,"ipMasq":true,`, master: "demo0"},
	{name: "ptp", keys: `"ipMasq":true,`},
	{name: "macvlan", keys: `"master":"up0",`, prepare: uplink, master: "up0"},
	{name: "ipvlan", keys: `"master":"up0",`, prepare: uplink, master: "up0", needs: []netlab.Feature{netlab.IPVLAN}},
	{name: "vlan", keys: `"master":"up0","vlanId":5,`, prepare: uplink, master: "up0", needs: []netlab.Feature{netlab.VLAN}},
	{name: "host-device", keys: `"device":"up0",`, prepare: uplink, takes: "up0"},
	{name: "tap"},
	{name: "dummy", needs: []netlab.Feature{netlab.Dummy}},
	{name: "loopback", noIPAM: true},
	{name: "flannel", keys: `"delegate":{"bridge":"demo0","isDefaultGateway":true,"ipMasq":true},`, master: "demo0", keeps: true},
}

// uplink makes a link for those that need one.
var uplink = []string{"link add up0 type veth peer name up1", "link set up0 up", "link set up1 up"}

// config returns the plugin's configuration with other keys or another section ipam.
func (m mainPlugin) config(keys, ipam string) string {
	if !m.noIPAM {
		keys += fmt.Sprintf(`"ipam":%s,`, ipam)
	}
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"demo",%s"type":%q}`, keys, m.name)
}

// ranges is the section ipam of all of them, and mistakes are keys of theirs with values that no ADD would take.
const (
	ranges   = `{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]]}`
	mistakes = `"mtu":"big","ipMasq":"maybe","ipMasqBackend":"frobnicate","bridge":7,"vlan":"x","vlanId":9999,"master":"frobnicate","mode":"frobnicate",` +
		`"device":7,"delegate":7,"mac":"02:00","owner":"nobody","linkInContainer":"yes","isGateway":"yes","dns":7,"args":{"cni":{"mac":"02:00"}},"runtimeConfig":{"mac":"02:00"},`
)

// TestMains makes sure that mains has each plugin that makes an interface.
func TestMains(t *testing.T) {
	t.Parallel()
	for _, row := range plugins.All {
		const ofDaemon = "contivk8s" // what it attaches is a daemon's, which test/conformance and test/agent have
		if row.Kind == plugin.Main && row.Name != ofDaemon && !slices.ContainsFunc(mains, func(m mainPlugin) bool { return m.name == row.Name }) {
			t.Errorf("mains lacks %s", row.Name)
		}
	}
}

// node returns one on which a container was attached and detached: what all containers share is there from then on.
func (m mainPlugin) node(t *testing.T) *netlab.Host {
	t.Helper()
	for _, feature := range m.needs {
		netlab.Need(t, feature)
	}
	host, _ := node(t)
	for _, words := range m.prepare {
		host.MustRun(t, "ip", strings.Fields(words)...)
	}
	first := host.NewPod(t, "first")
	for _, verb := range []string{"ADD", "DEL"} {
		if r := host.Exec(t, m.name, first.Call(verb, m.config(m.keys, ranges))); r.ExitCode != 0 {
			t.Fatal(r)
		}
	}
	return host
}

// TestDELNeedsNothing has DEL of each plugin find the attachment in some state, twice. It gets no result of ADD, and leaves nothing.
func TestDELNeedsNothing(t *testing.T) {
	t.Parallel()
	for _, m := range mains {
		for i, c := range m.dels() {
			if netlab.LeftOut(t, i, 2) {
				continue
			}
			t.Run(m.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				m.testDel(t, c)
			})
		}
	}
}

// delCase is a state in which DEL finds an attachment, and what it gets.
type delCase struct {
	name       string
	never      bool // there was no ADD
	nsGone     bool
	masterGone bool
	state      func(t *testing.T, host *netlab.Host, pod *netlab.Pod)
	keys, ipam string // those of ADD unless they are given here
	noPath     bool
	ipamFails  bool // which is an error
}

func (m mainPlugin) dels() []delCase {
	cases := []delCase{
		{name: "as it was"},
		{name: "the namespace is gone", nsGone: true, state: func(t *testing.T, _ *netlab.Host, pod *netlab.Pod) { pod.Delete(t) }},
		{name: "a plain file is left of the namespace", nsGone: true, state: func(t *testing.T, _ *netlab.Host, pod *netlab.Pod) { pod.DeleteKeepFile(t) }},
		{name: "another namespace has its path", nsGone: true, state: func(t *testing.T, _ *netlab.Host, pod *netlab.Pod) { pod.Replace(t) }},
		{name: "there is no path, and the namespace is gone", nsGone: true, noPath: true, state: func(t *testing.T, _ *netlab.Host, pod *netlab.Pod) { pod.Delete(t) }},
		{name: "the keys are wrong", keys: mistakes},
		{name: "there are no keys", keys: " "},
		{name: "the section ipam can't be read", ipam: "7"},
		{name: "the section ipam names no plugin", ipam: `{"type":7}`},
		{name: "the IPAM plugin is not there", ipam: `{"type":"frobnicate"}`, ipamFails: true},
		{name: "the IPAM plugin fails", ipam: `{"type":"broken"}`, ipamFails: true},
		{name: "it was never added", never: true},
		{name: "it was never added, and there is no path", never: true, noPath: true},
		{name: "it was never added, and the keys are wrong", never: true, keys: mistakes},
	}
	if m.master != "" {
		cases = append(cases, delCase{name: "the master is gone", masterGone: true,
			state: func(t *testing.T, host *netlab.Host, _ *netlab.Pod) { host.MustRun(t, "ip", "link", "del", m.master) }})
	}
	if m.noIPAM {
		cases = slices.DeleteFunc(cases, func(c delCase) bool { return c.ipam != "" })
	}
	return cases
}

func (m mainPlugin) testDel(t *testing.T, c delCase) {
	host := m.node(t)
	host.InstallPlugin(t, "broken", "/bin/false")
	pod := host.NewPod(t, "web")
	good := m.config(m.keys, ranges)
	before := host.Snapshot(t)
	call := func(verb, config string) netlab.PluginResult {
		call := pod.Call(verb, config)
		if c.noPath {
			call.Netns = ""
		}
		return host.Exec(t, m.name, call)
	}
	if !c.never {
		if r := host.Exec(t, m.name, pod.Call("ADD", good)); r.ExitCode != 0 {
			t.Fatal(r)
		}
	}
	if c.state != nil {
		c.state(t, host, pod)
	}
	for i := range 2 {
		fails := c.ipamFails && !(m.keeps && i == 0)
		if r := call("DEL", m.config(cmp.Or(c.keys, m.keys), cmp.Or(c.ipam, ranges))); (r.ExitCode != 0) != fails {
			t.Errorf("DEL: %v", r)
		}
	}
	left := before.Diff(host.Snapshot(t), slices.Concat(storeFiles, []string{"file /run/netns/", "mount /run/netns/"})...)
	if c.ipamFails {
		for line := range strings.Lines(left) {
			isNote := strings.HasPrefix(line, "+ file /var/lib/cni/cnibox/") // by which gc knows that it is gone
			if !isNote && !strings.HasPrefix(line, "+ file /var/lib/cni/networks/demo/") {
				t.Errorf("not the IPAM plugin's, and left behind: %s", line)
			}
		}
		if r := call("DEL", good); r.ExitCode != 0 {
			t.Errorf("DEL with the section ipam of ADD: %v", r)
		}
		left = before.Diff(host.Snapshot(t), slices.Concat(storeFiles, []string{"file /run/netns/", "mount /run/netns/"})...)
	}
	for line := range strings.Lines(left) {
		if strings.HasPrefix(line, "- ") && (c.masterGone || c.nsGone && m.takes != "") {
			continue // went with that
		}
		t.Errorf("left behind: %s", line)
	}
}

// TestDELOrder has each plugin remove what the packet filter has first, then the link, and the lease last.
func TestDELOrder(t *testing.T) {
	t.Parallel()
	steps := []*regexp.Regexp{
		regexp.MustCompile(`NFT_MSG_\w+SETELEM`),
		regexp.MustCompile(`RTM_DELLINK|RTM_SETLINK|nlmsg_type=0x1[13]`), // in the container's namespace strace does not know their names
		regexp.MustCompile(`unlink(at)?\(.*/var/lib/cni/networks/demo/10\.`),
	}
	for _, m := range mains {
		if m.noIPAM {
			continue // it has one step
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			host := m.node(t)
			pod := host.NewPod(t, "web")
			config := m.config(m.keys, ranges)
			if r := host.Exec(t, m.name, pod.Call("ADD", config)); r.ExitCode != 0 {
				t.Fatal(r)
			}
			trace := filepath.Join(t.TempDir(), "trace")
			del := host.PluginCommand(t, m.name, pod.Call("DEL", config))
			strace := host.Command("strace", append([]string{"-f", "-qq", "-e", "trace=sendto,sendmsg,unlink,unlinkat", "-s", "200", "-o", trace, del.Path}, del.Args[1:]...)...)
			strace.Env, strace.Stdin = del.Env, del.Stdin
			if out, err := host.Output(strace); err != nil {
				t.Fatalf("DEL: %v\n%s", err, out)
			}
			text, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			last := 0
			for i, step := range steps {
				found := step.FindAllIndex(text, -1)
				if len(found) == 0 && (i > 0 || strings.Contains(m.keys, "ipMasq")) {
					t.Fatalf("%s is not in:\n%s", step, text)
				}
				for _, at := range found {
					if at[0] < last {
						t.Errorf("%s comes too early in:\n%s", step, text)
					}
				}
				if len(found) > 0 {
					last = found[len(found)-1][0]
				}
			}
		})
	}
}
