package tuning

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// describe prints settings in the order in which they are set.
func (s settings) describe() string {
	var parts []string
	for _, one := range s.sysctls {
		parts = append(parts, fmt.Sprintf("%s=%s", one.key.Path(), one.value))
	}
	for i, value := range s.values {
		if value != "" {
			parts = append(parts, names[i]+"="+value)
		}
	}
	return strings.Join(parts, " ")
}

func TestPrecedence(t *testing.T) {
	const (
		config  = `"mac":"02:00:00:00:00:0a","mtu":1400,"txQLen":1,"allmulti":true`
		runtime = `"runtimeConfig":{"mac":"02:00:00:00:00:0c"}`
		cniArgs = "MAC=02:00:00:00:00:0B"
	)
	tests := []struct {
		name, keys, cniArgs, want string
	}{
		{"nothing", ``, "", ""},
		{"configuration", config, "", "mac=02:00:00:00:00:0a mtu=1400 allmulti=true txQLen=1"},
		{"CNI_ARGS", config, cniArgs, "mac=02:00:00:00:00:0b mtu=1400 allmulti=true txQLen=1"},
		{"runtimeConfig", config + "," + runtime, cniArgs, "mac=02:00:00:00:00:0c mtu=1400 allmulti=true txQLen=1"},
		{"args", config + "," + runtime + `,"args":{"cni":{"mac":"02:00:00:00:00:0D","promisc":true,"mtu":1300,"allmulti":false,"txQLen":0}}`, cniArgs,
			"mac=02:00:00:00:00:0d promisc=true mtu=1300 allmulti=false txQLen=0"},
		{"args switch off, and an empty MAC address overrides nothing", config + `,"promisc":true,"args":{"cni":{"mac":"","promisc":false,"mtu":0}}`, "",
			"mac=02:00:00:00:00:0a allmulti=true txQLen=1"},
		{"null", `"mac":null,"sysctl":null,"allmulti":null,"args":null,"runtimeConfig":null`, "", ""},
		{"sysctls", `"sysctl":{"net.a.x":"1","net.a.y":"2"},"args":{"cni":{"sysctl":{"net/a/x":"3","net.a.z":"4"}}}`, "",
			"net/a/x=3 net/a/y=2 net/a/z=4"},
		{"args' sysctls alone", `"args":{"cni":{"sysctl":{"net.a.IFNAME":"3"}}}`, "", "net/a/eth0.1=3"},
		{"CNI_ARGS of others", ``, "IgnoreUnknown=1;K8S_POD_NAME=x;MAC=02:00:00:00:00:0b;", "mac=02:00:00:00:00:0b"},
	}
	for _, tt := range tests {
		keys := tt.keys
		if keys == "" {
			keys = `"name":"net"`
		}
		config, err := conf.Parse([]byte("{" + keys + "}"))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		s, err := readSettings(&plugin.Request{Config: config, Args: tt.cniArgs, Key: plugin.Key{IfName: "eth0.1"}})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := s.describe(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCNIArgsErrors(t *testing.T) {
	for args, text := range map[string]string{
		"MAC=02:00":                   "CNI_ARGS: MAC",
		"MAC=ff:ff:ff:ff:ff:ff":       "no MAC address of one interface",
		"K8S_POD_NAME=x":              "IgnoreUnknown",
		"MAC":                         "CNI_ARGS",
		"IgnoreUnknown=maybe;MAC=x:y": "IgnoreUnknown",
	} {
		config, err := conf.Parse([]byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = readSettings(&plugin.Request{Config: config, Args: args})
		wantError(t, args, err, text)
		if code := plugin.AsError(err).Code; code != types.ErrInvalidEnvironmentVariables {
			t.Errorf("%s: code %d", args, code)
		}
	}
}

func TestDataDir(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                          "/run/cni/tuning",
		`{"dataDir":""}`:              "/run/cni/tuning",
		`{"dataDir":"/var/lib/cni/"}`: "/var/lib/cni",
		`{"dataDir":"x"}`:             "/run/cni/tuning",
		`{"dataDir":7}`:               "/run/cni/tuning",
	} {
		config, err := conf.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := dataDir(config.Lenient()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
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
