package network

import (
	"reflect"
	"strings"
	"testing"
)

func TestRuntimeConf(t *testing.T) {
	rt, err := Parameters{
		Netns: "/run/netns/web", IfName: "eth0",
		Args:    "IgnoreUnknown=1;K8S_POD=a=b;",
		CapArgs: `{"mac":"02:00:00:00:00:01","portMappings":[{"hostPort":1,"containerPort":2,"protocol":"udp"}]}`,
		Publish: []string{"8080:80"},
	}.RuntimeConf()
	if err != nil {
		t.Fatal(err)
	}
	// What cnitool makes of the same path: printf /run/netns/web | sha512sum
	if want := "cnitool-82e215debf7df4651d36"; rt.ContainerID != want {
		t.Errorf("container id %s, want %s", rt.ContainerID, want)
	}
	if want := [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD", "a=b"}}; !reflect.DeepEqual(rt.Args, want) {
		t.Errorf("args %q, want %q", rt.Args, want)
	}
	ports := rt.CapabilityArgs["portMappings"].([]any)
	if len(ports) != 2 || ports[1] != (Port{"", 8080, 80, "tcp"}) {
		t.Errorf("port mappings %v", ports)
	}
	if rt.CapabilityArgs["mac"] != "02:00:00:00:00:01" {
		t.Errorf("capabilities %v", rt.CapabilityArgs)
	}
}

func TestRuntimeConfRefuses(t *testing.T) {
	tests := []struct {
		p    Parameters
		want string
	}{
		{Parameters{}, "--id"},
		{Parameters{ID: "a", Args: "KEY"}, `"KEY" is not KEY=VALUE`},
		{Parameters{ID: "a", Args: "=value"}, "is not KEY=VALUE"},
		{Parameters{ID: "a", CapArgs: "[]"}, "CAP_ARGS"},
		{Parameters{ID: "a", CapArgs: `{"portMappings":1}`, Publish: []string{"1:2"}}, "must be a list"},
		{Parameters{ID: "a", Publish: []string{"80"}}, "-p 80"},
	}
	for _, test := range tests {
		_, err := test.p.RuntimeConf()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got error %v, want one with %q", test.p, err, test.want)
		}
	}
}
