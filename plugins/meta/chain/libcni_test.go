package chain

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
	"github.com/cnibox/cnibox/pkg/result"
)

// FindInPath and ExecPlugin let libcni run the plugins of a lab.
func (l *lab) FindInPath(name string, _ []string) (string, error) {
	return filepath.Join(l.dir, name), nil
}

func (l *lab) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var command plugin.Command
	for _, v := range environ {
		if value, ok := strings.CutPrefix(v, "CNI_COMMAND="); ok {
			command = plugin.Command(value)
		}
	}
	r, err := l.request(command, string(stdin))
	if err != nil {
		return nil, err
	}
	made, err := request.Serve(ctx, l.table.Find(filepath.Base(path)).Plugin, r)
	if err != nil || command != plugin.Add {
		return nil, err
	}
	return result.Print(made, r.Version), nil
}

func (*lab) Decode(out []byte) (version.PluginInfo, error) {
	return (&version.PluginDecoder{}).Decode(out)
}

// TestSameAsLibcni has libcni run the same plugins one by one and in chains: each of them is asked the same, in the same order, and
// the result is the same to the byte.
func TestSameAsLibcni(t *testing.T) {
	const (
		a     = `{"type": "a", "capabilities": {"ips": true, "mac": false}, "ipam": {"type": "x", "list": [1, 2.5, null, "\u0001\"é😀"]}, "name": "own", "cniVersion": "0.1.0"}`
		b     = `{"type": "b", "capabilities": {"portMappings": true, "mac": true, "bandwidth": true}, "runtimeConfig": {"mac": "replaced"}, "args": {"cni": {}}}`
		c     = `{"type": "c", "runtimeConfig": {"mac": "kept"}, "disableCheck": true}`
		outer = `"capabilities": {"ips": true, "portMappings": true, "mac": true, "bandwidth": true, "more": true}`
	)
	chain := func(plugins ...string) string {
		return `{"type": "chain", ` + outer + `, "plugins": [` + strings.Join(plugins, ", ") + `]}`
	}
	forms := map[string][]string{
		"all in one":     {chain(a, b, c)},
		"at the front":   {chain(a, b), c},
		"at the end":     {a, chain(b, c)},
		"two":            {chain(a), chain(b, c)},
		"in the middle":  {a, chain(b), c},
		"of one, thrice": {chain(a), chain(b), chain(c)},
	}
	caps := map[string]any{
		"ips": []string{"10.0.0.9/24"}, "mac": "02:00:00:00:00:01", "IPS": "another case", "unasked": 1,
		"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}},
	}
	for _, version := range []string{"", "0.2.0", "0.4.0", "1.0.0", "1.1.0"} {
		plain := drive(t, version, []string{a, b, c}, caps)
		for name, plugins := range forms {
			t.Run(version+" "+name, func(t *testing.T) {
				got := drive(t, version, plugins, caps)
				if diff := cmp.Diff(plain.calls, got.calls, cmp.AllowUnexported(call{})); diff != "" {
					t.Errorf("calls, -one by one +chain:\n%s", diff)
				}
				if plain.result != got.result {
					t.Errorf("result\n%s\none by one\n%s", got.result, plain.result)
				}
			})
		}
	}
}

type driven struct {
	calls  []call
	result string
}

// drive has libcni do all it can with a list.
func drive(t *testing.T, version string, plugins []string, caps map[string]any) driven {
	t.Helper()
	l := newLab(t, "a", "b", "c")
	l.does["ADD a"] = addresses
	list, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion": "` + version + `", "name": "net", "plugins": [` + strings.Join(plugins, ", ") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	cni := libcni.NewCNIConfigWithCacheDir([]string{l.dir}, t.TempDir(), l)
	rt := &libcni.RuntimeConf{ContainerID: "c0ffee", NetNS: "/run/netns/web", IfName: "eth0", CapabilityArgs: caps}
	result, err := cni.AddNetworkList(ctx, list, rt)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if plugin.AtLeast(version, "0.4.0") {
		err = cni.CheckNetworkList(ctx, list, rt)
	}
	for _, err := range []error{
		err,
		cni.GetStatusNetworkList(ctx, list),
		cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "c0ffee", IfName: "eth0"}}}),
		cni.DelNetworkList(ctx, list, rt),
		cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	return driven{l.calls, string(text)}
}

// addresses is the ADD of a main plugin.
func addresses(context.Context, *plugin.Request) (*types100.Result, error) {
	inside := 0
	ips := []*types100.IPConfig{
		{Address: result.IPNet(prefix("10.0.0.9/24")), Gateway: prefix("10.0.0.1/32").Addr().AsSlice(), Interface: &inside},
		{Address: result.IPNet(prefix("fd00::9/64")), Interface: &inside},
		{Address: result.IPNet(prefix("10.0.1.9/24")), Interface: &inside},
	}
	return &types100.Result{
		Interfaces: []*types100.Interface{{Name: "eth0", Mac: "02:00:00:00:00:01", Mtu: 1500, Sandbox: "/run/netns/web", PciID: "0000:00:01.0"}},
		IPs:        ips, Routes: []*types.Route{{Dst: result.IPNet(prefix("0.0.0.0/0")), MTU: 1300}, {Dst: result.IPNet(prefix("::/0"))}},
		DNS: types.DNS{Nameservers: []string{"10.0.0.53"}, Search: []string{"lab"}},
	}, nil
}
