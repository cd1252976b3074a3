package tuning

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/netns/netnstest"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// lab is a node with one pod, whose eth0 is there for the plugin to change.
type lab struct {
	*testing.T
	host *netlab.Host
	pod  *netlab.Pod
}

const podMAC = "02:00:00:00:00:01"

func newLab(t *testing.T) *lab {
	t.Helper()
	host := netlab.NewHost(t)
	l := &lab{t, host, host.NewPod(t, "pod")}
	l.addInterface(podMAC)
	return l
}

func (l *lab) addInterface(mac string) {
	l.Helper()
	l.pod.MustRun(l.T, "ip", "link", "add", "eth0", "address", mac, "type", "veth", "peer", "name", "peer0")
}

// request returns a call with a configuration of which the inner keys are
// given. The result of the plugin before is that of one that made eth0.
func (l *lab) request(c plugin.Command, keys string) *plugin.Request {
	l.Helper()
	text := `{"cniVersion":"1.1.0","name":"net","type":"tuning"` + keys + `}`
	config, err := conf.Parse([]byte(text))
	if err != nil {
		l.Fatalf("%s: %v", text, err)
	}
	r := &plugin.Request{
		Command: c, Key: plugin.Key{Network: "net", ContainerID: "cid", IfName: "eth0"},
		Netns: l.pod.Path(), Version: "1.1.0", Config: config, Stdin: []byte(text),
		PrevResult: l.previousResult(podMAC),
	}
	if c == plugin.Del || c == plugin.GC {
		r.Config = config.Lenient()
	}
	return r
}

func (l *lab) previousResult(mac string) *types100.Result {
	return &types100.Result{Interfaces: []*types100.Interface{
		{Name: "eth0", Mac: "0a:00:00:00:00:01"}, // a link of the host that happens to be called the same
		{Name: "eth0", Mac: mac, Mtu: 1500, Sandbox: l.pod.Path()},
	}}
}

func (l *lab) add(r *plugin.Request) (result *types100.Result, err error) {
	l.at(r, func() { result, err = Plugin{}.Add(context.Background(), r) })
	return result, err
}

func (l *lab) mustAdd(keys string) *types100.Result {
	l.Helper()
	result, err := l.add(l.request(plugin.Add, keys))
	if err != nil {
		l.Fatal("ADD: ", err)
	}
	return result
}

// call makes a call other than ADD.
func (l *lab) call(r *plugin.Request) (err error) {
	verbs := map[plugin.Command]func(context.Context, *plugin.Request) error{
		plugin.Del: Plugin{}.Del, plugin.Check: Plugin{}.Check, plugin.Status: Plugin{}.Status, plugin.GC: Plugin{}.GC,
	}
	l.at(r, func() { err = verbs[r.Command](context.Background(), r) })
	return err
}

// at calls f on the host, with the request's namespace open.
func (l *lab) at(r *plugin.Request, f func()) {
	l.host.Do(func() {
		netnstest.At(r.Netns, func(ns *netns.NS) {
			r.OpenNS = func() *netns.NS { return ns }
			f()
		})
	})
}

// link describes the attributes of eth0.
func (l *lab) link() (text string) {
	l.Helper()
	l.pod.Do(func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			l.Fatal(err)
		}
		a := link.Attrs()
		text = fmt.Sprintf("%v mtu %d promisc %d allmulti %d txqlen %d", a.HardwareAddr, a.MTU, a.Promisc, a.Allmulti, a.TxQLen)
	})
	return text
}

func (l *lab) sysctl(key string) (value string) {
	l.Helper()
	l.pod.Do(func() {
		var err error
		if value, err = sysctl.Get(key); err != nil {
			l.Fatal(err)
		}
	})
	return value
}

// file returns what is in a file of the node, "" if there is none.
func (l *lab) file(path string) (text string) {
	l.Helper()
	l.host.Do(func() {
		b, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			l.Fatal(err)
		}
		text = string(b)
	})
	return text
}

func (l *lab) write(path, text string) {
	l.Helper()
	l.host.Do(func() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			l.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			l.Fatal(err)
		}
	})
}

// files lists a directory of the node.
func (l *lab) files(dir string) (names []string) {
	l.Helper()
	l.host.Do(func() {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			l.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	})
	return names
}

// wantError checks that err holds all texts, in its message or its remedy.
func wantError(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one with %q", what, texts)
		return
	}
	e := plugin.AsError(err)
	for _, text := range texts {
		if !strings.Contains(e.Msg+"\n"+e.Details, text) {
			t.Errorf("%s: error %q with remedy %q, want %q in it", what, e.Msg, e.Details, text)
		}
	}
	if e.Details == "" {
		t.Errorf("%s: error %q has no remedy", what, e.Msg)
	}
}
