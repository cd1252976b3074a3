package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
	"github.com/cnibox/cnibox/test/pagetest"
)

// TestRecipes does what the recipes tell a reader to do, and compares what is printed with what they show. The networks of a page are in
// /etc/cni/net.d. Each part of a page with commands has a node of its own, with a machine beside it on its network.
func TestRecipes(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/recipes/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no recipes found", err)
	}
	for _, page := range pages {
		text := read(t, page)
		networks := networksOf(text)
		for _, part := range partsOf(text, "\n###? ") {
			t.Run(strings.TrimSuffix(filepath.Base(page), ".md")+"/"+part.title, func(t *testing.T) {
				t.Parallel()
				newKitchen(t, networks, part).follow(part.steps)
			})
		}
	}
}

// part is what a page shows below one of its headings.
type part struct {
	title string
	steps []step
}

// step is a command of a page, the machine that it is for, and what it prints.
type step struct{ machine, command, prints string }

// prompt begins a command: "$ " for the node, "lan$ " for another machine.
var prompt = regexp.MustCompile(`^(\w*)\$ (.*)`)

// partsOf returns the parts of a page that have commands; a mark begins each, by a regular expression.
func partsOf(page, mark string) (parts []part) {
	block := regexp.MustCompile("(?s)```console\n(.*?)```")
	for _, section := range regexp.MustCompile(mark).Split(page, -1) {
		title, _, _ := strings.Cut(section, "\n")
		p := part{title: title}
		for _, m := range block.FindAllStringSubmatch(section, -1) {
			for line := range strings.Lines(m[1]) {
				if m := prompt.FindStringSubmatch(line); m != nil {
					p.steps = append(p.steps, step{machine: m[1], command: m[2]})
				} else if last := len(p.steps) - 1; last >= 0 {
					p.steps[last].prints += line
				}
			}
		}
		if len(p.steps) > 0 {
			parts = append(parts, p)
		}
	}
	return parts
}

// networksOf returns the networks of a page, by name.
func networksOf(page string) map[string]string {
	networks := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if name := regexp.MustCompile(`"name": "([^"]+)"`).FindStringSubmatch(m[1]); name != nil && strings.Contains(m[1], `"plugins"`) {
			networks[name[1]] = m[1]
		}
	}
	return networks
}

// kitchen is where a recipe is followed.
type kitchen struct {
	*operator
	dir      string // the working directory of all commands
	env      []string
	machines map[string]*netlab.Namespace
}

func newKitchen(t *testing.T, networks map[string]string, p part) *kitchen {
	t.Helper()
	needOf(t, networks, p)
	if p.steps[0].machine == "node1" {
		return newFlannelKitchen(t, networks)
	}
	host, outside := node(t)
	k := &kitchen{operator: &operator{t, host}, dir: t.TempDir(), machines: map[string]*netlab.Namespace{"": &host.Namespace, "lan": &outside.Namespace}}
	k.serve(host, networks)
	if strings.Contains(fmt.Sprint(networks), `"type": "dhcp"`) {
		k.env = append(k.env, "LEASES="+outside.ServeDNSMasq(t).Leases())
	}
	return k
}

// serve gives a host the networks, and the commands cnictl.
func (k *kitchen) serve(host *netlab.Host, networks map[string]string) {
	k.Helper()
	k.env = k.operator.env()
	for name, conflist := range networks {
		host.Feed(k, conflist, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/"+name+".conflist")
	}
}

// needOf skips a part whose networks, or whose commands, are of links that the kernel lacks.
func needOf(t *testing.T, networks map[string]string, p part) {
	t.Helper()
	var all strings.Builder
	for _, s := range p.steps {
		all.WriteString(s.command + "\n")
	}
	for name, conflist := range networks {
		if regexp.MustCompile(`cnictl (add|run --net) ` + name + ` `).MatchString(all.String()) {
			all.WriteString(conflist)
		}
	}
	for words, feature := range map[string]netlab.Feature{
		`"type": "ipvlan"`:      netlab.IPVLAN,
		`"type": "vlan"`:        netlab.VLAN,
		`type vlan`:             netlab.VLAN,
		`"type": "bandwidth"`:   netlab.Shaping,
		`"vlan": `:              netlab.BridgeVLANFiltering,
		`"vlanTrunk": `:         netlab.BridgeVLANFiltering,
		`bridge vlan_filtering`: netlab.BridgeVLANFiltering,
	} {
		if strings.Contains(all.String(), words) {
			netlab.Need(t, feature)
		}
	}
}

// follow does the steps, and makes sure that nothing is attached in the end.
func (k *kitchen) follow(steps []step) {
	k.Helper()
	var transcript strings.Builder
	for _, s := range steps {
		printed := k.do(s)
		fmt.Fprintf(&transcript, "%s$ %s\n%s", s.machine, s.command, printed)
		if !pagetest.LooksLike(printed, s.prints) {
			k.Errorf("%s$ %s\nprinted:\n%s\nthe page has:\n%s", s.machine, s.command, printed, s.prints)
		}
	}
	k.Logf("\n%s", transcript.String())
	if printed := k.must("show"); !strings.Contains(printed, "0 attachments") {
		k.Errorf("in the end there is\n%s", printed)
	}
}

// do runs a command as somebody does who types it: what it prints on a terminal. What it leaves in the background goes on.
func (k *kitchen) do(s step) string {
	k.Helper()
	if strings.Contains(s.command, "qemu-system-") {
		k.startGuest(s.command)
		return ""
	}
	machine, ok := k.machines[s.machine]
	if !ok {
		k.Fatalf("%s$ %s: there is no machine of that name", s.machine, s.command)
	}
	file, err := os.Create(filepath.Join(k.TempDir(), "printed"))
	if err != nil {
		k.Fatal(err)
	}
	defer file.Close()
	cmd := machine.Command("timeout", fmt.Sprint(netlab.Patience.Seconds()), "bash", "-c", s.command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = k.dir, k.env, file, file
	_ = machine.Run(cmd) // what a failure prints is what the page shows
	printed, err := os.ReadFile(file.Name())
	if err != nil {
		k.Fatal(err)
	}
	return string(printed)
}
