package loopback

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/netns/netnstest"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

type lab struct {
	*testing.T
	host *netlab.Host
	pod  *netlab.Pod
}

func newLab(t *testing.T) *lab {
	t.Helper()
	host := netlab.NewHost(t)
	return &lab{t, host, host.NewPod(t, "pod")}
}

func (l *lab) request() *plugin.Request {
	return &plugin.Request{Key: plugin.Key{Network: "net", ContainerID: "cid", IfName: "eth0"}, Netns: l.pod.Path(), Version: "1.1.0"}
}

func (l *lab) add(r *plugin.Request) (result *types100.Result, err error) {
	l.at(r, func() { result, err = Plugin{}.Add(context.Background(), r) })
	return result, err
}

func (l *lab) call(verb func(context.Context, *plugin.Request) error, r *plugin.Request) (err error) {
	l.at(r, func() { err = verb(context.Background(), r) })
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

// isUp tells whether ip(8) sees lo up.
func (l *lab) isUp() bool {
	return strings.Contains(l.pod.MustRun(l.T, "ip", "link", "show", "lo"), "LOOPBACK,UP")
}

func TestLoopback(t *testing.T) {
	l := newLab(t)
	first := 0
	want := &types100.Result{
		Interfaces: []*types100.Interface{{Name: "lo", Mac: "00:00:00:00:00:00", Sandbox: l.pod.Path()}},
		IPs: []*types100.IPConfig{
			{Address: plugin.IPNet(netip.MustParsePrefix("127.0.0.1/8")), Interface: &first},
			{Address: plugin.IPNet(netip.MustParsePrefix("::1/128")), Interface: &first},
		},
	}
	for range 2 { // lo may be up already
		result, err := l.add(l.request())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if !l.isUp() {
			t.Error("lo is down after ADD")
		}
	}
	if err := l.call(Plugin{}.Check, l.request()); err != nil {
		t.Error("CHECK: ", err)
	}
	for range 2 {
		if err := l.call(Plugin{}.Del, l.request()); err != nil {
			t.Error("DEL: ", err)
		}
		if l.isUp() {
			t.Error("lo is up after DEL")
		}
	}
	err := l.call(Plugin{}.Check, l.request())
	if err == nil || !strings.Contains(err.Error(), "loopback interface is down in "+l.pod.Path()) {
		t.Errorf("CHECK with lo down: %v", err)
	}
	for name, verb := range map[string]func(context.Context, *plugin.Request) error{"STATUS": Plugin{}.Status, "GC": Plugin{}.GC} {
		if err := l.call(verb, &plugin.Request{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddWithoutIPv6(t *testing.T) {
	l := newLab(t)
	l.pod.MustRun(t, "sysctl", "-q", "-w", "net.ipv6.conf.lo.disable_ipv6=1")
	result, err := l.add(l.request())
	if err != nil {
		t.Fatal(err)
	}
	if len(result.IPs) != 1 || plugin.Prefix(result.IPs[0].Address) != netip.MustParsePrefix("127.0.0.1/8") {
		t.Errorf("addresses %v", result.IPs)
	}
}

func TestAddPassesPrevResultOn(t *testing.T) {
	l := newLab(t)
	r := l.request()
	r.PrevResult = &types100.Result{Interfaces: []*types100.Interface{{Name: "eth0", Sandbox: l.pod.Path()}}}
	result, err := l.add(r)
	if err != nil || result != r.PrevResult {
		t.Errorf("result %v, error %v", result, err)
	}
	if !l.isUp() {
		t.Error("lo is down after ADD")
	}
}

func TestAddRefusesOtherAddresses(t *testing.T) {
	for _, address := range []string{"10.9.8.7/32", "2001:db8::7/128"} {
		l := newLab(t)
		l.pod.MustRun(t, "ip", "address", "add", address, "dev", "lo")
		_, err := l.add(l.request())
		if err == nil || !strings.Contains(err.Error(), "non-loopback address \""+address+"\"") {
			t.Errorf("%s: error %v", address, err)
		}
		if l.isUp() {
			t.Errorf("%s: lo is up after a failed ADD", address)
		}
		l.pod.SetLoopbackUp(t)
		if _, err := l.add(l.request()); err == nil {
			t.Errorf("%s: no error with lo up", address)
		}
		if !l.isUp() {
			t.Errorf("%s: lo was up before the failed ADD and is down now", address)
		}
	}
}

func TestDelWithTheNamespaceGone(t *testing.T) {
	for name, drop := range map[string]func(l *lab, r *plugin.Request){
		"none given": func(_ *lab, r *plugin.Request) { r.Netns = "" },
		"gone":       func(l *lab, _ *plugin.Request) { l.pod.Delete(l.T) },
		"plain file": func(l *lab, _ *plugin.Request) { l.pod.DeleteKeepFile(l.T) },
	} {
		l := newLab(t)
		r := l.request()
		drop(l, r)
		if err := l.call(Plugin{}.Del, r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
