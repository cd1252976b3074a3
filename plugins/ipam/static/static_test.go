package static

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

const (
	two = `"addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}, {"address": "fd00::3/64"}]`
	all = `{"ipam": {` + two + `}, "args": {"cni": {"ips": ["10.5.0.5/16"]}}, "runtimeConfig": {"ips": ["10.6.0.6/16", "fd06::6/64"]}}`
)

func FuzzConfig(f *testing.F) {
	f.Add(all, "IP=10.4.0.4/16;GATEWAY=10.4.0.1")
	f.Add(`{"ipam": {`+two+`, "routes": [{"dst": "::/0"}], "dns": {"search": []}}}`, "")
	f.Fuzz(func(t *testing.T, config, args string) {
		o, err := conf.Parse([]byte(config))
		if err != nil {
			return
		}
		r := &plugin.Request{Command: plugin.Add, Key: plugin.Key{Network: "net", ContainerID: "c1", IfName: "eth0"}, Args: args, Version: "1.1.0", Config: o}
		leased, err := Plugin{}.Add(t.Context(), r)
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
		o, err = conf.Parse(result.Print(leased, "1.1.0"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := result.Parse(o, "1.1.0"); err != nil {
			t.Fatal(err)
		}
	})
}
