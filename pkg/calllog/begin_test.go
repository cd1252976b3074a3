package calllog

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestOff(t *testing.T) {
	t.Chdir(turnedOn(t, MinSize)) // "" is not this directory
	dir := t.TempDir()
	for _, dir := range []string{"", dir, filepath.Join(dir, "missing")} {
		log := Begin(dir)
		if log != nil {
			t.Fatalf("on in %q", dir)
		}
		log.Step("nothing")
		log.End("demo", &plugin.Request{}, nil, nil, "")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("made %v", left)
	}
}

func TestEnd(t *testing.T) {
	dir := turnedOn(t, DefaultSize)
	r := &plugin.Request{
		Command: plugin.Add, Key: plugin.Key{Network: "demo", ContainerID: "c0ffee", IfName: "eth0"}, Netns: "/run/netns/web",
		Args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;PASSWORD=hunter2",
	}
	made := &types100.Result{
		Interfaces: []*types100.Interface{{Name: "veth1", Mac: "02:00:00:00:00:01"}, {Name: "eth0", Sandbox: "/run/netns/web"}},
		IPs:        []*types100.IPConfig{{Address: net.IPNet{IP: net.IPv4(10, 88, 0, 7), Mask: net.CIDRMask(24, 32)}}},
	}
	log := Begin(dir)
	for i := range 100 {
		log.Step(fmt.Sprint("step ", i))
	}
	log.End("bridge", r, made, nil, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	Begin(dir).End("demo", r, made, types.NewError(types.ErrTryAgainLater, "stopped", "repeat it"), "")
	Begin(dir).End("demo", r, nil, errors.New("some error"), "")
	Begin(dir).End("demo", &plugin.Request{Command: plugin.Status}, nil, nil, "") // no line
	Begin(dir).End("demo", &plugin.Request{Command: plugin.Status}, nil, errors.New("not ready"), "")

	got := read(t, dir)
	if len(got) != 4 {
		t.Fatalf("%d calls", len(got))
	}
	c := got[0]
	if c.Key != r.Key || c.Verb != "ADD" || c.Plugin != "bridge" || c.Netns != r.Netns || c.Pod != "default/web-1" || c.PID != os.Getpid() || c.Error != nil ||
		c.TraceID != "0af7651916cd43dd8448eb211c80319c" || c.SpanID != "b7ad6b7169203331" || c.Time.IsZero() || c.Took < c.Steps[31].At {
		t.Errorf("got %+v", c)
	}
	if len(c.Addresses) != 1 || c.Addresses[0] != "10.88.0.7/24" || len(c.Interfaces) != 2 || c.Interfaces[0] != (Interface{"veth1", "02:00:00:00:00:01", ""}) ||
		c.Interfaces[1] != (Interface{"eth0", "", "/run/netns/web"}) {
		t.Errorf("result %v %v", c.Addresses, c.Interfaces)
	}
	if len(c.Steps) != 32 || c.Steps[1].Text != "step 1" {
		t.Errorf("steps %v", c.Steps)
	}
	if c = got[1]; c.Error == nil || *c.Error != (types.Error{Code: 11, Msg: "stopped", Details: "repeat it"}) || c.Addresses != nil || c.Interfaces != nil || c.Steps != nil {
		t.Errorf("got %+v", c)
	}
	if c = got[2]; c.Error == nil || c.Error.Code != 999 || c.Error.Msg != "some error" {
		t.Errorf("got %+v", c)
	}
	if c = got[3]; c.Verb != "STATUS" || c.Error == nil {
		t.Errorf("got %+v", c)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, current)); strings.Contains(string(text), "hunter2") {
		t.Errorf("the log has secrets:\n%s", text)
	}
}
