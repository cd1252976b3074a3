package operator

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// newNetwork has cnictl make a network that is called new, in which lint finds nothing.
func (o *operator) newNetwork(kind string, args ...string) (printed string) {
	o.Helper()
	printed = o.must(append([]string{"new", kind, "new", "--yes"}, args...)...)
	_, wrote, _ := strings.Cut(printed, "\nwrote ")
	file, _, _ := strings.Cut(wrote, ";")
	if found := o.must("lint", file); !strings.HasPrefix(found, "nothing is wrong") {
		o.Errorf("lint, of %s:\n%s", printed, found)
	}
	return printed
}

// TestNew makes a network of each kind, and tries it with packets.
func TestNew(t *testing.T) {
	t.Parallel()
	lan := []string{"--range", "192.0.2.100-192.0.2.119"}
	for _, kind := range []struct {
		name  string
		args  []string
		works []string // tests of probe
		needs netlab.Feature
	}{
		{name: "bridge", args: []string{"--ipv6", "--limit", "100mbit"}, works: []string{"a to b, TCP", "a to the outside, ping", "published port, from the host, TCP", "published port, from b itself, UDP"}, needs: netlab.Shaping},
		{name: "bridge", args: []string{"--for", "containerd"}, works: []string{"a to b, UDP", "a to the outside, ping", "published port, from a, TCP"}},
		{name: "ptp", args: []string{"--ipv6"}, works: []string{"a to b, TCP", "a to the outside, ping", "published port, from a, TCP"}},
		{name: "macvlan", args: lan, works: []string{"a to b, TCP", "a to its gateway, ping", "a to the outside, ping"}},
		{name: "ipvlan", args: lan, works: []string{"a to b, TCP", "a to its gateway, ping", "a to the outside, ping"}, needs: netlab.IPVLAN},
	} {
		t.Run(strings.Join(append([]string{kind.name}, kind.args...), " "), func(t *testing.T) {
			t.Parallel()
			if kind.needs.Name != "" {
				netlab.Need(t, kind.needs)
			}
			o := newOperator(t)
			made := o.newNetwork(kind.name, kind.args...)
			code, printed := o.cnictl(append([]string{"probe", "new", "--to", netlab.OutsideIPv4}, patience...)...)
			if code != 0 || strings.Contains(printed, "failed") {
				t.Errorf("exit code %d\n%s\n%s", code, made, printed)
			}
			for _, test := range kind.works {
				_, after, _ := strings.Cut(printed, test+" ")
				if line, _, _ := strings.Cut(after, "\n"); !strings.Contains(line, "ok") {
					t.Errorf("%q does not work:\n%s\n%s", test, made, printed)
				}
			}
		})
	}
}

// TestNewVLAN reaches another machine in the VLAN.
func TestNewVLAN(t *testing.T) {
	t.Parallel()
	netlab.Need(t, netlab.VLAN)
	host, outside := node(t)
	o := &operator{t, host}
	outside.MustRun(t, "sh", "-ec", "ip link add link uplink0 name uplink0.7 type vlan id 7; ip address add 10.7.0.1/24 dev uplink0.7; ip link set uplink0.7 up")
	o.newNetwork("vlan", "--vlan", "7", "--subnet", "10.7.0.0/24", "--range", "10.7.0.100-10.7.0.109", "--gateway", "10.7.0.1")
	if printed := o.must("run", "--network", "new", "--", "ping", "-c", "1", "-W", fmt.Sprint(netlab.Patience.Seconds()), "10.7.0.1"); !strings.Contains(printed, "10.7.0.100") {
		t.Error(printed)
	}
	if code, printed := o.cnictl("new", "vlan", "--vlan", "7", "--subnet", "10.8.0.0/24", "--yes"); code != 1 || !strings.Contains(printed, "network new") {
		t.Errorf("the same VLAN again: exit code %d\n%s", code, printed)
	}
	host.MustRun(t, "ip", "link", "add", "link", "uplink0", "name", "mine", "type", "vlan", "id", "8")
	if code, printed := o.cnictl("new", "vlan", "--vlan", "8", "--subnet", "10.8.0.0/24", "--yes"); code != 1 || !strings.Contains(printed, "cnictl new macvlan --master mine") {
		t.Errorf("the host's VLAN: exit code %d\n%s", code, printed)
	}
}

// TestNewHostDevice gives a container a link that leads to another machine.
func TestNewHostDevice(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	o := &operator{t, host}
	host.MustRun(t, "sh", "-ec", "ip link add spare0 type veth peer name far0; ip address add 10.9.0.1/24 dev far0; ip link set far0 up")
	o.newNetwork("host-device", "--device", "spare0", "--subnet", "10.9.0.0/24", "--gateway", "10.9.0.1")
	if printed := o.must("run", "--network", "new", "--", "ping", "-c", "1", "-W", fmt.Sprint(netlab.Patience.Seconds()), "10.9.0.1"); !strings.Contains(printed, "10.9.0.2") {
		t.Error(printed)
	}
	for _, refused := range []struct{ device, says string }{{"uplink0", "the host would lose its network"}, {"far0", "the host uses it with the address 10.9.0.1/24"}, {"eth7", "there is no such link"}} {
		if code, printed := o.cnictl("new", "host-device", "--device", refused.device, "--yes"); code == 0 || !strings.Contains(printed, refused.says) {
			t.Errorf("%s: exit code %d\n%s", refused.device, code, printed)
		}
	}
}

// TestNewInside makes networks whose links lead nowhere, and looks at what the container gets.
func TestNewInside(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name  string
		needs netlab.Feature
	}{{name: "dummy", needs: netlab.Dummy}, {name: "tap"}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			if kind.needs.Name != "" {
				netlab.Need(t, kind.needs)
			}
			o := newOperator(t)
			o.newNetwork(kind.name, "--subnet", "10.9.0.0/24")
			if printed := o.must("run", "--network", "new", "--", "ping", "-c", "1", "-W", fmt.Sprint(netlab.Patience.Seconds()), "10.9.0.2"); !strings.Contains(printed, "1 received") {
				t.Error(printed)
			}
		})
	}
}

// made returns what is of interest in the file of a network.
func (o *operator) made(file string) (subnet, version string) {
	o.Helper()
	var list struct {
		CNIVersion string
		Plugins    []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal([]byte(o.host.MustRun(o, "cat", file)), &list); err != nil {
		o.Fatal(err)
	}
	return list.Plugins[0].IPAM.Ranges[0][0].Subnet, list.CNIVersion
}

// answered runs cnictl on a terminal of its own, where somebody types answers.
func (o *operator) answered(answers string, args ...string) (printed string) {
	o.Helper()
	script := exec.Command("script", "-qec", netlab.Cnictl(o)+" "+strings.Join(args, " "), "/dev/null")
	script.Env, script.Stdin = os.Environ(), strings.NewReader(answers)
	printed, err := o.host.Output(script)
	if err != nil {
		o.Errorf("%q: %v\n%s", answers, err, printed)
	}
	return printed
}

// TestNewAsks asks on a terminal, and asks again for what can't be.
func TestNewAsks(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	printed := o.answered("9x\n1\ndemo\nasked\n10.1.0.1/24\n10.77.0.0/24\nwhat\nn\n\n\n", "new")
	for _, says := range []string{"answer with a name or a number", "there is a network demo already", "it is an address in the subnet 10.1.0.0/24", "answer y or n", "wrote /etc/cni/net.d/11-asked.conflist"} {
		if !strings.Contains(printed, says) {
			t.Errorf("%q is missing:\n%s", says, printed)
		}
	}
	if subnet, _ := o.made("/etc/cni/net.d/11-asked.conflist"); subnet != "10.77.0.0/24" {
		t.Errorf("the subnet is %s", subnet)
	}
	if printed := o.answered("lan\n\nn\n\ny\n", "new", "macvlan"); !strings.Contains(printed, "Which addresses? [192.0.2.234-192.0.2.253]") || !strings.Contains(printed, "wrote /etc/cni/net.d/10-lan.conflist") {
		t.Error(printed)
	}
	before := o.host.MustRun(t, "ls", "/etc/cni/net.d")
	for _, answer := range []string{"n\n", ""} { // no terminal
		if printed := o.refused(answer, "new", "bridge", "not"); !strings.Contains(printed, "nothing was written; to write without a question say --yes") {
			t.Error(printed)
		}
	}
	o.must("new", "bridge", "not", "--dry-run")
	if after := o.host.MustRun(t, "ls", "/etc/cni/net.d"); after != before {
		t.Errorf("written though nobody agreed:\n%s", after)
	}
}

// refused runs cnictl with a text as its input. It has to fail.
func (o *operator) refused(input string, args ...string) (printed string) {
	o.Helper()
	cmd := o.host.Command("sh", "-c", `! "$0" "$@" 2>&1`, netlab.Cnictl(o))
	cmd.Args = append(cmd.Args, args...)
	cmd.Stdin = strings.NewReader(input)
	printed, err := o.host.Output(cmd)
	if err != nil {
		o.Errorf("%q: %v\n%s", args, err, printed)
	}
	return printed
}

// TestForRuntime writes and installs where runtimes' own configurations say.
func TestForRuntime(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		word, file, text   string
		conf, bin, version string
	}{
		{"containerd", "/etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/cni/c'\nbin_dirs = ['/opt/cni/c']\n", "/etc/cni/c", "/opt/cni/c", "1.1.0"},
		{"crio", "/etc/crio/crio.conf.d/10.conf", "[crio.network]\nnetwork_dir = '/etc/cni/o'\nplugin_dirs = ['/opt/cni/none', '/opt/cni/bin']\n", "/etc/cni/o", "/opt/cni/bin", "1.0.0"},
		{"podman", "/etc/containers/containers.conf", "[network]\nnetwork_backend = 'cni'\nnetwork_config_dir = '/etc/cni/p'\ncni_plugin_dirs = ['/opt/cni/p']\n", "/etc/cni/p", "/opt/cni/p", "1.0.0"},
		{"nomad", "/etc/nomad.d/client.hcl", "client {\n  enabled = true\n  cni_path = \"/opt/cni/n:/opt/cni/m\"\n  cni_config_dir = \"/etc/cni/n\"\n}\n", "/etc/cni/n", "/opt/cni/n", "1.0.0"},
		{"k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nconf_dir = '/etc/cni/k'\nbin_dir = '/opt/cni/k'\n", "/etc/cni/k", "/opt/cni/k", "1.0.0"},
		{"nerdctl", "/etc/nerdctl/nerdctl.toml", "cni_netconfpath = '/etc/cni/d'\ncni_path = '/opt/cni/d'\n", "/etc/cni/d", "/opt/cni/d", "1.0.0"},
	} {
		t.Run(r.word, func(t *testing.T) {
			t.Parallel()
			host := netlab.NewHost(t)
			host.InstallPlugins(t, "bridge")
			o := &operator{t, host}
			// An /etc and a /var/lib of its own, over the machine's; the directories that the host has below them stay.
			host.Feed(t, r.text, "sh", "-ec", `for d in etc var/lib; do
				mkdir -p /run/upper/$d /run/scratch/$d /run/kept/$d
				mount --bind /$d/cni /run/kept/$d
				mount -t overlay overlay /$d -o lowerdir=/$d,upperdir=/run/upper/$d,workdir=/run/scratch/$d
				mkdir -p /$d/cni; mount --bind /run/kept/$d /$d/cni
			done
			mkdir -p "${0%/*}"; cat >"$0"`, r.file)
			printed := o.newNetwork("bridge", "--for", r.word)
			if !strings.Contains(printed, r.file) || !strings.Contains(printed, "wrote "+r.conf+"/10-new.conflist") {
				t.Error(printed)
			}
			if _, version := o.made(r.conf + "/10-new.conflist"); version != r.version {
				t.Errorf("cniVersion %s, want %s", version, r.version)
			}
			printed = o.must("install", "--for", r.word, "--from", netlab.Cnibox(t), "--force")
			if !strings.Contains(printed, r.file) || !strings.Contains(printed, "plugins in "+r.bin+"\n") {
				t.Error(printed)
			}
			host.MustRun(t, "test", "-x", r.bin+"/bridge")
			if r.word == "nomad" { // two lines of its HCL are looked for, and the rest may be anything
				return
			}
			host.Feed(t, "= broken", "sh", "-ec", `cat >"$0"`, r.file)
			for _, args := range [][]string{{"new", "bridge", "--for", r.word, "--yes"}, {"install", "--for", r.word}} {
				if code, printed := o.cnictl(args...); code != 1 || !strings.Contains(printed, r.file) {
					t.Errorf("a broken configuration: %q: exit code %d\n%s", args, code, printed)
				}
			}
		})
	}
}
