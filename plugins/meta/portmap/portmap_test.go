package portmap

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/request"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

const patience = 5 * time.Second

// lab is a host with a pod on a veth of the host, port0, and an outside.
type lab struct {
	*netlab.Host
	t       *testing.T
	outside *netlab.Outside
}

func newLab(t *testing.T) *lab {
	h := netlab.NewHost(t)
	l := &lab{h, t, h.NewOutside(t)}
	h.MustRun(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	pod := h.NewPod(t, "web")
	h.MustRun(t, "ip", "link", "add", "port0", "up", "type", "veth", "peer", "name", "eth0", "netns", "web")
	h.MustRun(t, "ip", "addr", "add", "10.88.0.1/24", "dev", "port0")
	pod.MustRun(t, "ip", "link", "set", "eth0", "up")
	pod.MustRun(t, "ip", "addr", "add", "10.88.0.2/24", "dev", "eth0")
	pod.MustRun(t, "ip", "route", "add", "default", "via", "10.88.0.1")
	pod.ServeTCP(t, ":80")
	return l
}

// request is one about the attachment of container c.
func (l *lab) request(command plugin.Command, keys, mappings string) *plugin.Request {
	l.t.Helper()
	o, err := conf.Parse([]byte(configText(keys, mappings)))
	if err != nil {
		l.t.Fatal(err)
	}
	return &plugin.Request{
		Command: command, Version: "1.1.0", Config: o,
		Key: plugin.Key{Network: "net", ContainerID: "c", IfName: "eth0"}, Netns: "/run/netns/web",
		PrevResult: &types100.Result{
			Interfaces: []*types100.Interface{{Name: "port0"}, {Name: "eth0", Sandbox: "/run/netns/web"}},
			IPs:        []*types100.IPConfig{{Address: result.IPNet(netip.MustParsePrefix("10.88.0.2/24"))}},
		},
	}
}

// call calls the verb of the request in the host's namespaces.
func (l *lab) call(r *plugin.Request) (result *types100.Result, err error) {
	ctx := context.Background()
	l.Do(func() {
		result, err = request.Serve(ctx, Plugin{}, r)
	})
	return result, err
}

func (l *lab) must(r *plugin.Request) {
	l.t.Helper()
	if _, err := l.call(r); err != nil {
		l.t.Fatalf("%s: %v", r.Command, err)
	}
}

func (l *lab) nft() string { return l.MustRun(l.t, "nft", "list", "ruleset") }

// bare is a request with the key and nothing else.
func (l *lab) bare(command plugin.Command) *plugin.Request {
	r := l.request(command, "", "")
	r.PrevResult, r.Netns = nil, ""
	return r
}

func (l *lab) publishes(target string) bool {
	_, err := l.outside.DialTCP(target, patience)
	return err == nil
}

func TestPublish(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	add := l.request(plugin.Add, "", webPort)
	result, err := l.call(add)
	if err != nil || result != add.PrevResult {
		t.Fatalf("ADD: %v, %v", result, err)
	}
	if !l.publishes("192.0.2.1:8080") {
		t.Error("the port does not answer outside")
	}
	if got, err := l.DialTCP("127.0.0.1:8080", patience); err != nil || got != "web saw 10.88.0.1" {
		t.Errorf("127.0.0.1: %q, %v", got, err)
	}
	l.must(l.request(plugin.Check, "", webPort))
	l.must(l.request(plugin.Status, "", ""))

	for _, other := range []string{`{"hostPort":8081,"containerPort":80,"protocol":"tcp"}`, webPort + `,{"hostPort":9,"containerPort":9,"protocol":"udp"}`} {
		if _, err := l.call(l.request(plugin.Check, "", other)); err == nil {
			t.Errorf("CHECK is content with %s", other)
		}
	}
	if _, err := l.call(l.request(plugin.Check, `,"snat":false`, webPort)); err == nil {
		t.Error("CHECK is content with another snat")
	}

	for range 2 {
		l.must(l.bare(plugin.Del)) // no mappings, no prevResult, no namespace
	}
	closes := time.Now().Add(time.Second) // nftables has TCP's elements expire
	for l.publishes("192.0.2.1:8080") {
		if time.Now().After(closes) {
			t.Fatal("the port answers after DEL")
		}
	}
	if got := l.nft(); strings.Contains(got, "/c/eth0") {
		t.Errorf("left behind:\n%s", got)
	}
	if got := l.MustRun(t, "sysctl", "-n", "net.ipv4.conf.port0.route_localnet"); got != "0\n" {
		t.Errorf("route_localnet is %s", got)
	}
}

func TestNothingToPublish(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, command := range []plugin.Command{plugin.Add, plugin.Check} {
		r := l.request(command, `,"backend":"iptables"`, "")
		result, err := l.call(r)
		if err != nil || command == plugin.Add && result != r.PrevResult {
			t.Errorf("%s: %v, %v", command, result, err)
		}
	}
	l.must(l.bare(plugin.Del))
	l.must(l.bare(plugin.GC))
	l.must(l.bare(plugin.Status))
	if got := l.nft(); got != "" {
		t.Errorf("made a ruleset:\n%s", got)
	}
}

func TestErrorsChangeNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, tt := range []struct{ keys, mappings, want string }{
		{`,"backend":"ipchains"`, webPort, `backend: unknown backend "ipchains"`},
		{`,"conditionsV4":["ip","tll","1"]`, webPort, "conditionsV4"},
	} {
		_, err := l.call(l.request(plugin.Add, tt.keys, tt.mappings))
		var shown *types.Error
		if !errors.As(err, &shown) || !strings.Contains(shown.Msg, tt.want) || shown.Code != types.ErrInvalidNetworkConfig || shown.Details == "" {
			t.Errorf("%s: %v, want %q", tt.keys, err, tt.want)
		}
	}
	if _, err := l.call(l.request(plugin.Status, `,"backend":"ipchains"`, "")); err == nil {
		t.Error("STATUS is content with a backend that there is not")
	}
	if got := l.nft(); got != "" {
		t.Errorf("made a ruleset:\n%s", got)
	}
}

func TestTakenPortNamesItsOwner(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(l.request(plugin.Add, "", webPort))
	before := l.nft()
	second := l.request(plugin.Add, "", webPort)
	second.ContainerID = "d"
	if _, err := l.call(second); err == nil || !strings.Contains(err.Error(), "host port tcp/8080 is already published by net/c/eth0") {
		t.Errorf("second ADD: %v", err)
	}
	del := l.bare(plugin.Del)
	del.ContainerID = "d"
	l.must(del)
	if got := l.nft(); got != before {
		t.Errorf("the second container changed something:\n%s", got)
	}
}

func TestGC(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(l.request(plugin.Add, "", webPort))
	gc := l.bare(plugin.GC)
	gc.Valid, gc.HasValid = []plugin.Attachment{{ContainerID: "c", IfName: "eth0"}}, true
	l.must(gc)
	l.must(l.request(plugin.Check, "", webPort))
	gc.Valid = nil
	l.must(gc)
	if got := l.nft(); strings.Contains(got, "/c/eth0") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestNoRouteToContainer publishes without SNAT, as there is no link to do it
// for.
func TestNoRouteToContainer(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	l := &lab{Host: h, t: t}
	l.must(l.request(plugin.Add, "", webPort))
	l.must(l.request(plugin.Check, "", webPort))
	if got := l.nft(); strings.Contains(got, `"lo"`) || !strings.Contains(got, "tcp . 8080") {
		t.Errorf("unexpected:\n%s", got)
	}
	// An address of the host itself is routed by lo, which no guard may be for.
	h.MustRun(t, "ip", "addr", "add", "10.88.0.2/32", "dev", "lo")
	l.must(l.request(plugin.Add, "", webPort))
	if got := l.nft(); strings.Contains(got, `"lo"`) {
		t.Errorf("a guard for lo:\n%s", got)
	}
	l.must(l.bare(plugin.Del))
}
