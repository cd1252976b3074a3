package static

import (
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

func request(t testing.TB, config, args, version string) *plugin.Request {
	t.Helper()
	o, err := conf.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	if version == "" {
		version = "1.1.0"
	}
	r := &plugin.Request{
		Command: plugin.Add, Key: plugin.Key{Network: "net", ContainerID: "c1", IfName: "eth0"},
		Args: args, Version: version, Config: o,
	}
	if o.Has("prevResult") {
		if r.PrevResult, err = result.Parse(o.Object("prevResult"), version); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func addressesOf(r *types100.Result) string {
	var all []string
	for _, ip := range r.IPs {
		text := ip.Address.String()
		if ip.Gateway != nil {
			text += ">" + ip.Gateway.String()
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

const (
	two = `"addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}, {"address": "fd00::3/64"}]`
	all = `{"ipam": {` + two + `}, "args": {"cni": {"ips": ["10.5.0.5/16"]}}, "runtimeConfig": {"ips": ["10.6.0.6/16", "fd06::6/64"]}}`
)

func TestAddresses(t *testing.T) {
	for _, test := range []struct{ name, config, args, want string }{
		{"configured", `{"ipam": {` + two + `}}`, "", "10.1.2.3/24>10.1.2.1 fd00::3/64"},
		{"none", `{"ipam": {}}`, "", ""},
		{"CNI_ARGS come after them", `{"ipam": {` + two + `}}`, "IP=10.4.0.4/16, fd04::4/64", "10.1.2.3/24>10.1.2.1 fd00::3/64 10.4.0.4/16 fd04::4/64"},
		{"GATEWAY of all kinds", `{"ipam": {` + two + `}}`, "IP=10.4.0.4/16;GATEWAY=10.4.0.1,fd00::1", "10.1.2.3/24>10.1.2.1 fd00::3/64>fd00::1 10.4.0.4/16>10.4.0.1"},
		{"GATEWAY over the configured", `{"ipam": {` + two + `}}`, "GATEWAY=10.1.2.254", "10.1.2.3/24>10.1.2.254 fd00::3/64"},
		{"GATEWAY of no address", `{"ipam": {` + two + `}}`, "GATEWAY=192.0.2.1", "10.1.2.3/24>10.1.2.1 fd00::3/64"},
		{"args.cni replaces", `{"ipam": {` + two + `}, "args": {"cni": {"ips": ["10.5.0.5/16"]}}}`, "IP=10.4.0.4/16", "10.5.0.5/16"},
		{"runtimeConfig replaces all", all, "IP=10.4.0.4/16;GATEWAY=10.6.0.1", "10.6.0.6/16 fd06::6/64"},
		{"empty lists replace nothing", `{"ipam": {` + two + `}, "args": {"cni": {"ips": []}}, "runtimeConfig": {"ips": []}}`, "", "10.1.2.3/24>10.1.2.1 fd00::3/64"},
		{"a placeholder that is replaced", `{"ipam": {"addresses": [{"address": "set at run time"}]}, "runtimeConfig": {"ips": ["10.6.0.6/16"]}}`, "", "10.6.0.6/16"},
		{"unknown arguments", `{"ipam": {}}`, "IgnoreUnknown=true;K8S_POD_NAME=x;IP=10.4.0.4/16", "10.4.0.4/16"},
	} {
		t.Run(test.name, func(t *testing.T) {
			leased, err := Plugin{}.Add(t.Context(), request(t, test.config, test.args, ""))
			if err != nil {
				t.Fatal(err)
			}
			if got := addressesOf(leased); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestResult(t *testing.T) {
	leased, err := Plugin{}.Add(t.Context(), request(t, `{"ipam": {"addresses": [{"address": "10.1.2.3/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.2.1"}],
		"dns": {"nameservers": ["192.0.2.1"], "domain": "a.example", "search": ["b.example"], "options": ["ndots:5"]}}, "dns": {"domain": "not this one"}}`, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
    "cniVersion": "1.1.0",
    "dns": {
        "domain": "a.example",
        "nameservers": [
            "192.0.2.1"
        ],
        "options": [
            "ndots:5"
        ],
        "search": [
            "b.example"
        ]
    },
    "ips": [
        {
            "address": "10.1.2.3/24"
        }
    ],
    "routes": [
        {
            "dst": "0.0.0.0/0",
            "gw": "10.1.2.1"
        }
    ]
}`
	if got := string(result.Print(leased, "1.1.0")); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct{ name, config, args, version, want string }{
		{"no ipam", `{}`, "", "", "IPAM config missing 'ipam' key"},
		{"no prefix length", `{"ipam": {"addresses": [{"address": "10.1.2.3/24"}, {"address": "10.1.2.3"}]}}`, "", "",
			"ipam.addresses[1].address: the 'address' field is expected to be in CIDR notation, got: '10.1.2.3'"},
		{"no address", `{"ipam": {"addresses": [{"gateway": "10.1.2.1"}]}}`, "", "", "ipam.addresses[0].address: the 'address' field is expected to be in CIDR notation, got: ''"},
		{"a number", `{"ipam": {"addresses": [{"address": 7}]}}`, "", "", `key "ipam.addresses[0].address": want a string, got the number 7`},
		{"gateway no address", `{"ipam": {"addresses": [{"address": "10.1.2.3/24", "gateway": "x"}]}}`, "", "", `key "ipam.addresses[0].gateway"`},
		{"addresses no list", `{"ipam": {"addresses": {}}}`, "", "", `key "ipam.addresses": want a list of objects`},
		{"IP", `{"ipam": {}}`, "IP=10.4.0.4", "", "CNI_ARGS IP: the 'ip' field is expected to be in CIDR notation, got: '10.4.0.4'"},
		{"IP that would be replaced", all, "IP=10.4.0.4", "", "CNI_ARGS IP"},
		{"GATEWAY", `{"ipam": {}}`, "GATEWAY=10.4.0.1/16", "", "CNI_ARGS GATEWAY: invalid gateway address: 10.4.0.1/16"},
		{"unknown arguments", `{"ipam": {}}`, "MAC=x", "", "unknown keys MAC"},
		{"args.cni", `{"ipam": {}, "args": {"cni": {"ips": ["10.5.0.5"]}}}`, "", "", "args.cni.ips: an entry in the 'ips' field is NOT in CIDR notation, got: '10.5.0.5'"},
		{"runtimeConfig", `{"ipam": {}, "runtimeConfig": {"ips": ["x"]}}`, "", "", "runtimeConfig.ips: an entry in the 'ips' field is NOT in CIDR notation, got: 'x'"},
		{"ips no list", `{"ipam": {}, "runtimeConfig": {"ips": "10.6.0.6/16"}}`, "", "", `key "runtimeConfig.ips": want a list of strings`},
		{"two of a family in 0.2.0", `{"ipam": {"addresses": [{"address": "10.1.2.3/24"}, {"address": "10.1.2.4/24"}]}}`, "", "0.2.0", "CNI version 0.2.0 does not support more than 1 address per family"},
		{"routes", `{"ipam": {"routes": [{"dst": "x"}]}}`, "", "", `key "ipam.routes[0].dst"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t, test.config, test.args, test.version)
			_, err := Plugin{}.Add(t.Context(), r)
			if err == nil {
				t.Fatal("no error")
			}
			e := plugin.AsError(err)
			if !strings.Contains(e.Msg, test.want) || e.Details == "" {
				t.Errorf("got  %s (%s)\nwant %s", e.Msg, e.Details, test.want)
			}
			if err := (Plugin{}).Status(t.Context(), r); err == nil {
				t.Error("STATUS finds nothing wrong")
			}
			if err := (Plugin{}).Del(t.Context(), r); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	const config = `{"ipam": {` + two + `}, "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}, {"name": "eth1", "sandbox": "/run/netns/x"}], "ips": [IPS]}}`
	for _, test := range []struct{ name, ips, want string }{
		{"as configured", `{"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 0}, {"address": "fd00::3/64", "interface": 0}`, ""},
		{"with more", `{"address": "192.0.2.1/24"}, {"address": "10.1.2.3/24", "gateway": "10.1.2.1"}, {"address": "fd00::3/64", "gateway": "fd00::1"}`, ""},
		{"one is missing", `{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}`, "the configured address fd00::3/64 is not on interface eth0"},
		{"on another interface", `{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}, {"address": "fd00::3/64", "interface": 1}`, "fd00::3/64 is not on interface eth0"},
		{"other prefix length", `{"address": "10.1.2.3/16", "gateway": "10.1.2.1"}, {"address": "fd00::3/64"}`, "10.1.2.3/24 is not on interface eth0"},
		{"other gateway", `{"address": "10.1.2.3/24", "gateway": "10.1.2.9"}, {"address": "fd00::3/64"}`, "configured as 10.1.2.1 and was set up as 10.1.2.9"},
		{"no gateway", `{"address": "10.1.2.3/24"}, {"address": "fd00::3/64"}`, "configured as 10.1.2.1 and was set up as none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Plugin{}.Check(t.Context(), request(t, strings.Replace(config, "IPS", test.ips, 1), "", ""))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(all, "IP=10.4.0.4/16;GATEWAY=10.4.0.1")
	f.Add(`{"ipam": {`+two+`, "routes": [{"dst": "::/0"}], "dns": {"search": []}}}`, "")
	f.Fuzz(func(t *testing.T, config, args string) {
		if _, err := conf.Parse([]byte(config)); err != nil || strings.Contains(strings.ToLower(config), "prevresult") {
			return
		}
		leased, err := Plugin{}.Add(t.Context(), request(t, config, args, ""))
		if err != nil {
			_ = result.PrintError(plugin.AsError(err), "1.1.0")
			return
		}
		for _, ip := range leased.IPs {
			if ip.Address.IP == nil {
				t.Fatalf("%s: %+v", config, leased)
			}
		}
		// What was made is printed so that it can be read again.
		o, err := conf.Parse(result.Print(leased, "1.1.0"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := result.Parse(o, "1.1.0"); err != nil {
			t.Fatal(err)
		}
	})
}
