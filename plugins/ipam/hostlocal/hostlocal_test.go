package hostlocal

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/request"
	"github.com/cnibox/cnibox/pkg/result"
)

// call is a request for the plugin. In the configuration, DIR is the data
// directory.
type call struct {
	config  string
	id      string // container id, "c1" unless set
	args    string
	version string
}

// node is a data directory.
type node struct {
	*testing.T
	dir string
}

func newNode(t *testing.T) *node { return &node{t, t.TempDir()} }

func (n *node) request(command plugin.Command, c call) *plugin.Request {
	n.Helper()
	o, err := conf.Parse([]byte(strings.ReplaceAll(c.config, "DIR", n.dir)))
	if err != nil {
		n.Fatal(err)
	}
	r := &plugin.Request{
		Command: command,
		Key:     plugin.Key{Network: "net", ContainerID: "c1", IfName: "eth0"},
		Args:    c.args, Version: "1.1.0", Config: o,
	}
	if c.id != "" {
		r.ContainerID = c.id
	}
	if c.version != "" {
		r.Version = c.version
	}
	if command == plugin.Del || command == plugin.GC {
		r.Config = o.Lenient()
	}
	if o.Has("prevResult") {
		if r.PrevResult, err = result.Parse(o.Object("prevResult"), r.Version); err != nil {
			n.Fatal(err)
		}
	}
	return r
}

func (n *node) add(c call) (*types100.Result, error) {
	n.Helper()
	return Plugin{}.Add(n.Context(), n.request(plugin.Add, c))
}

func (n *node) mustAdd(c call) *types100.Result {
	n.Helper()
	leased, err := n.add(c)
	if err != nil {
		n.Fatal(err)
	}
	return leased
}

func (n *node) mustDel(c call) {
	n.Helper()
	if err := (Plugin{}).Del(n.Context(), n.request(plugin.Del, c)); err != nil {
		n.Error(err)
	}
}

// leases returns "address=content" of the network's leases.
func (n *node) leases() string {
	n.Helper()
	entries, _ := os.ReadDir(filepath.Join(n.dir, "net"))
	var all []string
	for _, e := range entries {
		if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last_reserved_ip") {
			data, _ := os.ReadFile(filepath.Join(n.dir, "net", e.Name()))
			all = append(all, e.Name()+"="+strings.ReplaceAll(string(data), "\r\n", "/"))
		}
	}
	return strings.Join(all, " ")
}

// put makes a file in the network's directory.
func (n *node) put(name, content string) {
	n.Helper()
	dir := filepath.Join(n.dir, "net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		n.Fatal(err)
	}
}

// ipam returns a configuration with that in its ipam object.
func ipam(members string) string {
	return fmt.Sprintf(`{"ipam": {"type": "host-local", "dataDir": "DIR", %s}}`, members)
}

func addressesOf(r *types100.Result) string {
	var all []string
	for _, ip := range r.IPs {
		all = append(all, ip.Address.String()+">"+ip.Gateway.String())
	}
	return strings.Join(all, " ")
}

func TestAddresses(t *testing.T) {
	for _, test := range []struct {
		name string
		call
		want string
	}{
		{"inline range", call{config: ipam(`"subnet": "10.1.2.0/24"`)}, "10.1.2.2/24>10.1.2.1"},
		{"a range set", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}]]`)}, "10.1.2.2/24>10.1.2.1"},
		{"keys without regard to case", call{config: ipam(`"SUBNET": "10.1.2.0/24"`)}, "10.1.2.2/24>10.1.2.1"},
		{"gateway and start", call{config: ipam(`"subnet": "10.1.2.0/24", "gateway": "10.1.2.254", "rangeStart": "10.1.2.9"`)}, "10.1.2.9/24>10.1.2.254"},
		{"gateway in the way", call{config: ipam(`"subnet": "10.1.2.0/24", "gateway": "10.1.2.9", "rangeStart": "10.1.2.9"`)}, "10.1.2.10/24>10.1.2.9"},
		{"gateway outside of the subnet", call{config: ipam(`"subnet": "10.1.2.0/24", "gateway": "192.0.2.1"`)}, "10.1.2.1/24>192.0.2.1"},
		{"network address as start", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.0"`)}, "10.1.2.0/24>10.1.2.1"},
		{"broadcast address as end", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.255", "rangeEnd": "10.1.2.255"`)}, "10.1.2.255/24>10.1.2.1"},
		{"IPv6", call{config: ipam(`"subnet": "fd00::/64"`)}, "fd00::2/64>fd00::1"},
		{"IPv6 to the last", call{config: ipam(`"subnet": "fd00::/126", "rangeStart": "fd00::3"`)}, "fd00::3/126>fd00::1"},
		{"smallest", call{config: ipam(`"subnet": "10.1.2.4/30"`)}, "10.1.2.6/30>10.1.2.5"},
		{"dual stack", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]`)}, "10.1.2.2/24>10.1.2.1 fd00::2/64>fd00::1"},
		{"several ranges of a set", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "10.7.0.0/16"}]]`), args: "IP=10.7.1.1"}, "10.7.1.1/16>10.7.0.1"},
		{"ipRanges, inline, ranges", call{config: `{"ipam": {"dataDir": "DIR", "subnet": "10.1.0.0/24", "ranges": [[{"subnet": "10.2.0.0/24"}]]},
			"runtimeConfig": {"ipRanges": [[{"subnet": "10.0.0.0/24"}]]}}`}, "10.0.0.2/24>10.0.0.1 10.1.0.2/24>10.1.0.1 10.2.0.2/24>10.2.0.1"},
		{"CNI_ARGS", call{config: ipam(`"subnet": "10.1.2.0/24"`), args: "IP=10.1.2.7"}, "10.1.2.7/24>10.1.2.1"},
		{"CNI_ARGS with a prefix length", call{config: ipam(`"subnet": "10.1.2.0/24"`), args: "IgnoreUnknown=1;K8S_POD_NAME=x;IP=10.1.2.7/16"}, "10.1.2.7/24>10.1.2.1"},
		{"args and capability together", call{config: `{"ipam": {"dataDir": "DIR", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]},
			"args": {"cni": {"ips": ["10.1.2.8"]}}, "runtimeConfig": {"ips": ["fd00::8/64", "10.1.2.8/24"]}}`}, "10.1.2.8/24>10.1.2.1 fd00::8/64>fd00::1"},
		{"two of a family in 0.3.0", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]`), version: "0.3.0"}, "10.1.2.2/24>10.1.2.1 10.1.3.2/24>10.1.3.1"},
		{"one of each family in 0.2.0", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]`), version: "0.2.0"}, "10.1.2.2/24>10.1.2.1 fd00::2/64>fd00::1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := addressesOf(newNode(t).mustAdd(test.call)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestResult(t *testing.T) {
	n := newNode(t)
	resolv := filepath.Join(n.dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	leased := n.mustAdd(call{config: ipam(`"subnet": "10.1.2.0/24", "resolvConf": "` + resolv + `",
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.168.0.0/16", "gw": "10.1.2.9", "mtu": 1400, "priority": 7}]`)})
	const want = `{
    "cniVersion": "1.1.0",
    "dns": {
        "nameservers": [
            "192.0.2.1"
        ]
    },
    "ips": [
        {
            "address": "10.1.2.2/24",
            "gateway": "10.1.2.1"
        }
    ],
    "routes": [
        {
            "dst": "0.0.0.0/0"
        },
        {
            "dst": "192.168.0.0/16",
            "gw": "10.1.2.9",
            "mtu": 1400,
            "priority": 7
        }
    ]
}`
	if got := string(result.Print(leased, "1.1.0")); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		call
		want string // in the message
	}{
		{"no ipam", call{config: `{}`}, "IPAM config missing 'ipam' key"},
		{"ipam is null", call{config: `{"ipam": null}`}, "IPAM config missing 'ipam' key"},
		{"ipam is a list", call{config: `{"ipam": []}`}, `key "ipam": want an object, got a list`},
		{"no ranges", call{config: ipam(`"ranges": []`)}, "no IP ranges specified"},
		{"empty set", call{config: ipam(`"ranges": [[]]`)}, "invalid range set 0: empty range set"},
		{"flat ranges", call{config: ipam(`"ranges": [{"subnet": "10.1.2.0/24"}]`)}, `key "ipam.ranges[0]": want a list of objects, got an object`},
		{"no subnet", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}, {}]]`)}, `invalid range set 0: key "ipam.ranges[0][1].subnet" is missing`},
		{"no prefix length", call{config: ipam(`"subnet": "10.1.2.0"`)}, `key "ipam.subnet": want an address with prefix length, such as 10.88.0.2/24, got "10.1.2.0"`},
		{"a number", call{config: ipam(`"subnet": 10`)}, `key "ipam.subnet": want a string, got the number 10`},
		{"host bits", call{config: ipam(`"subnet": "10.1.2.3/24"`)}, "Network has host bits set: 10.1.2.3/24. For a subnet mask of length 24 the network address is 10.1.2.0"},
		{"mapped", call{config: ipam(`"subnet": "::ffff:10.1.2.0/120"`)}, "IPv4 written as IPv6"},
		{"start outside", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeStart": "10.1.3.1"`)}, `key "ipam.rangeStart": RangeStart 10.1.3.1 not in network 10.1.2.0/24`},
		{"start of the other family", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeStart": "fd00::1"`)}, "RangeStart fd00::1 not in network"},
		{"end outside", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeEnd": "10.1.1.1"`)}, `key "ipam.rangeEnd": RangeEnd 10.1.1.1 not in network 10.1.2.0/24`},
		{"end before start", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.5"`)}, "RangeStart 10.1.2.9 is behind RangeEnd 10.1.2.5"},
		{"start no address", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeStart": "ten"`)}, `key "ipam.rangeStart"`},
		{"gateway no address", call{config: ipam(`"subnet": "10.1.2.0/24", "gateway": "10.1.2.0/24"`)}, `key "ipam.gateway"`},
		{"only the gateway", call{config: ipam(`"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.1", "rangeEnd": "10.1.2.1"`)}, "has no address to hand out"},
		{"mixed families", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "fd00::/64"}]]`)}, "mixed address families"},
		{"overlap in a set", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}, {"subnet": "10.1.2.0/28"}]]`)}, "subnets 10.1.2.1-10.1.2.254 and 10.1.2.1-10.1.2.14 overlap"},
		{"overlap of sets", call{config: ipam(`"ranges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "fd00::/64"}], [{"subnet": "10.1.2.0/24"}]]`)}, "range set 0 overlaps with 2"},
		{"two of a family in 0.2.0", call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]`), version: "0.2.0"}, "CNI version 0.2.0 does not support more than 1 address per family"},
		{"bad ipRanges", call{config: `{"ipam": {"dataDir": "DIR"}, "runtimeConfig": {"ipRanges": [[{"subnet": "x"}]]}}`}, `invalid range set 0: key "runtimeConfig.ipRanges[0][0].subnet"`},
		{"resolvConf", call{config: ipam(`"subnet": "10.1.2.0/24", "resolvConf": "/does/not/exist"`)}, `key "ipam.resolvConf": open /does/not/exist`},
		{"route without dst", call{config: ipam(`"subnet": "10.1.2.0/24", "routes": [{"gw": "10.1.2.1"}]`)}, `key "ipam.routes[0].dst"`},
		{"relative dataDir", call{config: `{"ipam": {"subnet": "10.1.2.0/24", "dataDir": "leases"}}`}, `"leases", is not an absolute path`},
		{"dataDir is a number", call{config: `{"ipam": {"subnet": "10.1.2.0/24", "dataDir": 1}}`}, `key "ipam.dataDir": want a string`},
		{"CNI_ARGS no address", call{config: ipam(`"subnet": "10.1.2.0/24"`), args: "IP=10.1.2.7,10.1.2.8"}, `CNI_ARGS IP: "10.1.2.7,10.1.2.8" is no IP address`},
		{"CNI_ARGS unknown", call{config: ipam(`"subnet": "10.1.2.0/24"`), args: "MAC=x"}, "CNI_ARGS: unknown keys MAC"},
		{"ips no address", call{config: `{"ipam": {"dataDir": "DIR", "subnet": "10.1.2.0/24"}, "runtimeConfig": {"ips": ["x"]}}`}, `runtimeConfig.ips: "x" is no IP address`},
		{"ips no list", call{config: `{"ipam": {"dataDir": "DIR", "subnet": "10.1.2.0/24"}, "args": {"cni": {"ips": "10.1.2.7"}}}`}, `key "args.cni.ips": want a list of strings`},
		{"not in range", call{config: ipam(`"subnet": "10.1.2.0/24"`), args: "IP=10.1.3.7"}, "failed to allocate all requested IPs: 10.1.3.7 (CNI_ARGS IP) is not in range set 10.1.2.1-10.1.2.254"},
		{"the gateway", call{config: ipam(`"subnet": "10.1.2.0/24"`), args: "IP=10.1.2.1"}, "requested ip 10.1.2.1 (CNI_ARGS IP) is subnet's gateway"},
		{"two of a set", call{config: `{"ipam": {"dataDir": "DIR", "subnet": "10.1.2.0/24"}, "runtimeConfig": {"ips": ["10.1.2.7", "10.1.2.8"]}}`},
			"failed to allocate all requested IPs: 10.1.2.8 (runtimeConfig.ips): range set 0 is to serve 10.1.2.7 already"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			_, err := n.add(test.call)
			if err == nil {
				t.Fatal("no error")
			}
			e := plugin.AsError(err)
			if !strings.Contains(e.Msg, test.want) {
				t.Errorf("got  %s\nwant %s", e.Msg, test.want)
			}
			if e.Details == "" {
				t.Errorf("%s: no remedy", e.Msg)
			}
			if e.Code != types.ErrInvalidNetworkConfig && e.Code != types.ErrInvalidEnvironmentVariables {
				t.Errorf("code %d", e.Code)
			}
			if entries, _ := os.ReadDir(n.dir); len(entries) > 0 {
				t.Errorf("left %v behind", entries)
			}
			// Whatever is wrong, DEL is possible.
			n.mustDel(test.call)
		})
	}
}

func TestSecondAddHarmsNothing(t *testing.T) {
	c := call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]`)}
	for _, args := range []string{"", "IP=10.1.2.9", "IP=10.1.2.2"} {
		n := newNode(t)
		n.mustAdd(c)
		before := n.leases()
		again := c
		again.args = args
		_, err := n.add(again)
		if err == nil || !strings.Contains(err.Error(), "duplicate allocation is not allowed") {
			t.Errorf("%q: got %v", args, err)
		}
		if n.leases() != before {
			t.Errorf("%q: %s, before %s", args, n.leases(), before)
		}
		n.mustDel(c)
		if n.leases() != "" {
			t.Errorf("DEL left %s", n.leases())
		}
		n.mustDel(c)
	}
}

func TestAddressTaken(t *testing.T) {
	n := newNode(t)
	c := call{config: ipam(`"subnet": "10.1.2.0/24"`), args: "IP=10.1.2.7"}
	n.mustAdd(c)
	c.id = "c2"
	_, err := n.add(c)
	e := plugin.AsError(err)
	if want := "failed to allocate for range 0: requested IP address 10.1.2.7 is not available in range set 10.1.2.1-10.1.2.254: it is held by container c1, interface eth0, since 2"; !strings.HasPrefix(e.Msg, want) || e.Code != types.ErrTryAgainLater || e.Details == "" {
		t.Errorf("got code %d, %q (%s)\nwant %q", e.Code, e.Msg, e.Details, want)
	}
}

func TestPoolExhausted(t *testing.T) {
	n := newNode(t)
	c := call{config: ipam(`"subnet": "10.1.2.0/29"`)}
	for i := range 5 {
		c.id = fmt.Sprint("c", i)
		n.mustAdd(c)
	}
	before := n.leases()
	c.id = "late"
	_, err := n.add(c)
	e := plugin.AsError(err)
	if want := "failed to allocate for range 0: no IP addresses available in range set: 10.1.2.1-10.1.2.6: 5 addresses, all taken"; !strings.HasPrefix(e.Msg, want) || e.Code != types.ErrTryAgainLater {
		t.Errorf("got code %d, %q\nwant %q", e.Code, e.Msg, want)
	}
	if !strings.Contains(e.Details, "cnictl gc") {
		t.Errorf("the remedy is %q", e.Details)
	}
	if n.leases() != before {
		t.Errorf("%s, before %s", n.leases(), before)
	}
	if err := (Plugin{}).Status(t.Context(), n.request(plugin.Status, c)); err != nil {
		t.Errorf("STATUS with a full pool: %v", err)
	}
}

func TestDelNeedsOnlyDataDir(t *testing.T) {
	good := call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]`)}
	for _, config := range []string{
		good.config,
		ipam(`"ranges": "gone"`),
		ipam(`"subnet": "10.99.0.0/16", "routes": 7, "resolvConf": "/does/not/exist"`),
		ipam(`"ranges": [[{"subnet": "10.1.2.3/32"}]]`),
		`{"IPAM": {"Datadir": "DIR"}, "runtimeConfig": 1, "args": []}`,
	} {
		n := newNode(t)
		n.mustAdd(good)
		n.mustDel(call{config: config, args: "nonsense"})
		if n.leases() != "" {
			t.Errorf("%s: left %s", config, n.leases())
		}
	}
}

func TestDataDirDefault(t *testing.T) {
	for _, config := range []string{`{}`, `{"ipam": null}`, `{"ipam": {"dataDir": ""}}`, `{"ipam": {"dataDir": 7}}`, `{"ipam": 7}`} {
		n := newNode(t)
		if got := dataDir(n.request(plugin.Del, call{config: config}).Config.Object("ipam")); got != "/var/lib/cni/networks" {
			t.Errorf("%s: %s", config, got)
		}
	}
}

func TestDelOfNothing(t *testing.T) {
	n := newNode(t)
	n.mustDel(call{config: ipam(`"subnet": "10.1.2.0/24"`)})
	n.mustDel(call{config: `{"ipam": {"dataDir": "relative"}}`})
	if entries, _ := os.ReadDir(n.dir); len(entries) > 0 {
		t.Errorf("made %v", entries)
	}
}

func TestCheck(t *testing.T) {
	const prev = `{"ipam": {"dataDir": "DIR", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}, "prevResult": {"cniVersion": "1.1.0",
		"interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/run/netns/c1"}, {"name": "eth1", "sandbox": "/run/netns/c1"}], "ips": [%s]}}`
	plain := call{config: ipam(`"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]`)}
	for _, test := range []struct {
		name   string
		config string
		files  string // name=content name=content
		want   string // in the error, "" is none
	}{
		{"held", fmt.Sprintf(prev, `{"address": "10.1.2.2/24", "interface": 1}, {"address": "fd00::2/64", "interface": 1}`), "10.1.2.2=c1/eth0 fd00::2=c1/eth0", ""},
		{"in the old form", fmt.Sprintf(prev, `{"address": "10.1.2.2/24"}`), "10.1.2.2=c1", ""},
		{"another IPAM's address", fmt.Sprintf(prev, `{"address": "10.1.2.2/24", "interface": 1}, {"address": "192.0.2.1/24", "interface": 1}`), "10.1.2.2=c1/eth0", ""},
		{"another interface's address", fmt.Sprintf(prev, `{"address": "10.1.2.2/24", "interface": 1}, {"address": "10.1.2.9/24", "interface": 2}`), "10.1.2.2=c1/eth0", ""},
		{"one is gone", fmt.Sprintf(prev, `{"address": "10.1.2.2/24", "interface": 1}, {"address": "fd00::2/64", "interface": 1}`), "10.1.2.2=c1/eth0", "fd00::2 of container c1, interface eth0 is not held"},
		{"one is torn", fmt.Sprintf(prev, `{"address": "10.1.2.2/24", "interface": 1}`), "10.1.2.2=", "10.1.2.2 of container c1, interface eth0 is not held"},
		{"one is another's", fmt.Sprintf(prev, `{"address": "10.1.2.2/24", "interface": 1}`), "10.1.2.2=c2/eth0 10.1.2.3=c1/eth0", "10.1.2.2 is not held by container c1, interface eth0 but by container c2, interface eth0"},
		{"no prevResult, held", plain.config, "10.1.2.2=c1/eth0", ""},
		{"no prevResult, none held", plain.config, "10.1.2.2=c2/eth0", "Failed to find address added by container c1"},
		{"no store", plain.config, "", "Failed to find address added by container c1"},
		{"no address in the ranges", fmt.Sprintf(prev, `{"address": "192.0.2.1/24", "interface": 1}`), "", "Failed to find address added by container c1"},
		{"bad configuration", ipam(`"subnet": "x"`), "10.1.2.2=c1/eth0", `key "ipam.subnet"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			for _, f := range strings.Fields(test.files) {
				name, content, _ := strings.Cut(f, "=")
				n.put(name, strings.ReplaceAll(content, "/", "\r\n"))
			}
			before := n.leases()
			err := Plugin{}.Check(t.Context(), n.request(plugin.Check, call{config: test.config}))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if n.leases() != before {
				t.Errorf("CHECK changed %s to %s", before, n.leases())
			}
		})
	}
}

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		name, config string
		want         uint // 0 is no error
	}{
		{"fine", ipam(`"subnet": "10.1.2.0/24"`), 0},
		{"ranges come from the runtime", `{"capabilities": {"ipRanges": true}, "ipam": {"dataDir": "DIR"}}`, 0},
		{"no ranges", `{"ipam": {"dataDir": "DIR"}}`, types.ErrInvalidNetworkConfig},
		{"bad range", ipam(`"subnet": "10.1.2.1/24"`), types.ErrInvalidNetworkConfig},
		{"no resolvConf", ipam(`"subnet": "10.1.2.0/24", "resolvConf": "/does/not/exist"`), types.ErrInvalidNetworkConfig},
		{"below a file", `{"ipam": {"subnet": "10.1.2.0/24", "dataDir": "/proc/self/comm/x"}}`, types.ErrPluginNotAvailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			err := Plugin{}.Status(t.Context(), n.request(plugin.Status, call{config: test.config}))
			switch {
			case test.want == 0 && err != nil:
				t.Error(err)
			case test.want != 0 && (err == nil || plugin.AsError(err).Code != test.want):
				t.Errorf("got %v, want code %d", err, test.want)
			}
			if entries, _ := os.ReadDir(n.dir); len(entries) > 0 {
				t.Errorf("made %v", entries)
			}
		})
	}
}

func TestGC(t *testing.T) {
	n := newNode(t)
	c := call{config: ipam(`"subnet": "10.1.2.0/24"`)}
	for _, id := range []string{"live", "dead"} {
		c.id = id
		n.mustAdd(c)
	}
	n.put("10.1.2.5", "live\r\neth1")
	n.put("10.1.2.6", "live")
	n.put("10.1.2.7", "dead")
	n.put("10.1.2.8", "")
	n.put("notes", "dead")
	before := n.leases()
	gc := func(has bool, valid ...plugin.Attachment) {
		t.Helper()
		r := n.request(plugin.GC, c)
		r.Key = plugin.Key{Network: "net"}
		r.HasValid, r.Valid = has, valid
		if _, err := request.Serve(t.Context(), Plugin{}, r); err != nil {
			t.Fatal(err)
		}
	}
	gc(false)
	if n.leases() != before {
		t.Errorf("GC without a list left %s of %s", n.leases(), before)
	}
	gc(true, plugin.Attachment{ContainerID: "live", IfName: "eth0"})
	if want := "10.1.2.2=live/eth0 10.1.2.6=live notes=dead"; n.leases() != want {
		t.Errorf("GC left %s, want %s", n.leases(), want)
	}
	gc(true)
	if want := "notes=dead"; n.leases() != want {
		t.Errorf("GC with an empty list left %s, want %s", n.leases(), want)
	}
}

func TestLegacyLease(t *testing.T) {
	n := newNode(t)
	c := call{config: ipam(`"subnet": "10.1.2.0/24"`)}
	n.put("10.1.2.9", "c1")
	if _, err := n.add(c); err == nil {
		t.Error("a container with a lease in the old form got another address")
	}
	n.mustDel(c)
	if n.leases() != "" {
		t.Errorf("left %s", n.leases())
	}
}

func TestParseResolvConf(t *testing.T) {
	got := parseResolvConf(`# comment
; another
nameserver 192.0.2.1
   nameserver	192.0.2.2 ignored
nameserver
domain one.example
domain two.example
search a.example b.example
search c.example
options ndots:5
options edns0 trust-ad
#nameserver 192.0.2.3
sortlist 10.0.0.0`)
	want := types.DNS{
		Nameservers: []string{"192.0.2.1", "192.0.2.2"}, Domain: "two.example",
		Search: []string{"a.example", "b.example", "c.example"}, Options: []string{"ndots:5", "edns0", "trust-ad"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// What is left of ranges is each address of theirs that is not excluded, once.
func TestWithout(t *testing.T) {
	subnet := netip.MustParsePrefix("10.1.2.0/27")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		first, last := rng.IntN(32), rng.IntN(32)
		left := []lease.Range{{Subnet: subnet, First: address(min(first, last)), Last: address(max(first, last))}}
		var excluded []netip.Prefix
		for range rng.IntN(4) {
			excluded = append(excluded, netip.PrefixFrom(address(rng.IntN(32)), 27+rng.IntN(6)).Masked())
			left = without(left, excluded[len(excluded)-1])
		}
		for i := range 32 {
			a, want, got := address(i), 0, 0
			if i >= min(first, last) && i <= max(first, last) && !slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(a) }) {
				want = 1
			}
			for _, r := range left {
				if r.Contains(a) {
					got++
				}
			}
			if got != want {
				t.Fatalf("%s without %v is %v: %s is in it %d times, want %d", subnet, excluded, left, a, got, want)
			}
		}
	}
}

// address returns the ith address of 10.1.2.0/24.
func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}) }

// Whatever the configuration: no panic; an error names no address as taken, and
// what ADD took, DEL gives back.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		`{"ipam": {"subnet": "10.1.2.0/24"}}`,
		`{"ipam": {"ranges": [[{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.5", "rangeEnd": "10.1.2.9", "gateway": "10.1.2.254"}], [{"subnet": "fd00::/64"}]]}}`,
		`{"ipam": {"ranges": [[]], "routes": [{"dst": "0.0.0.0/0"}]}, "runtimeConfig": {"ips": ["10.1.2.3"], "ipRanges": [[{"subnet": "10.2.0.0/16"}]]}, "args": {"cni": {"ips": []}}}`,
		`{"ipam": {"subnet": "255.255.255.252/30"}}`,
		`{"ipam": {"subnet": "255.255.255.254/31", "exclude": ["255.255.255.255"]}}`,
		`{"ipam": {"subnet": "0.0.0.0/30", "exclude": ["0.0.0.0/31"]}}`,
		`{"ipam": {"ranges": [[{"subnet": "fd00::/127", "exclude": ["fd00::"]}, {"subnet": "fd00::7/128", "gateway": "fe80::1"}]]}}`,
		`{"ipam": {"subnet": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126"}}`,
	} {
		f.Add(s, "IP=10.1.2.7")
	}
	f.Fuzz(func(t *testing.T, config, args string) {
		o, err := conf.Parse([]byte(config))
		if err != nil {
			return
		}
		r := &plugin.Request{Command: plugin.Add, Key: plugin.Key{Network: "net", ContainerID: "c1", IfName: "eth0"}, Args: args, Version: "1.1.0", Config: o}
		c, err := load(r)
		if err != nil {
			_ = result.PrintError(plugin.AsError(err), "1.1.0")
			return
		}
		if c.readRequests(r) != nil {
			return
		}
		c.store, err = lease.NewStore(t.TempDir(), "net", "")
		if err != nil {
			t.Fatal(err)
		}
		leases, err := c.store.Allocate(t.Context(), owner(r), c.pools)
		if err != nil {
			t.Fatalf("%s: %v", config, err)
		}
		for i, l := range leases {
			if at := c.pools[i].Find(l.Address); at < 0 || l.Address == c.pools[i].Ranges[at].Gateway {
				t.Fatalf("%s: got %v", config, l)
			}
		}
		if back, err := c.store.Release(t.Context(), owner(r)); err != nil || len(back) != len(leases) {
			t.Fatalf("%s: gave back %v of %v: %v", config, back, leases, err)
		}
	})
}
