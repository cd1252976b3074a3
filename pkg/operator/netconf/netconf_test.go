package netconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/plugins/known"
)

// table has the plugins, which say what they call.
var table = known.Plugins

// shown is what a part says of itself.
func shown(list []*Part) (all []string) {
	for _, p := range list {
		all = append(all, p.Path+" "+p.Named+" "+p.Kind)
	}
	return all
}

func read(t *testing.T, file, text string) *List {
	t.Helper()
	l, err := Parse(file, []byte(text), table.Find)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, file, text string
		want             []string
	}{
		{"a list", "a.conflist", `{"name": "n", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}, 7, {"type": "x-portmap"}, {"type": "tc"}, {}]}`,
			[]string{"plugins[0] bridge bridge", "plugins[0].ipam host-local host-local", "plugins[2] x-portmap portmap", "plugins[3] tc tc", "plugins[4]  "}},
		{"a single plugin", "a.conf", `{"name": "n", "type": "macvlan", "ipam": {"type": "dhcp"}}`, []string{" macvlan macvlan", "ipam dhcp dhcp"}},
		{"a list that has a type too", "a.conflist", `{"type": "bridge", "plugins": [{"type": "macvlan"}]}`, []string{"plugins[0] macvlan macvlan"}},
		{"the same with a result", "", `{"type": "bridge", "plugins": [{"type": "macvlan"}]}`, []string{"plugins[0] macvlan macvlan"}},
		{"a chain", "a.conf", `{"type": "chain", "plugins": [{"type": "bridge"}, {"type": "chain", "plugins": [{"type": "portmap"}]}]}`,
			[]string{" chain chain", "plugins[0] bridge bridge", "plugins[1] chain chain", "plugins[1].plugins[0] portmap portmap"}},
		{"flannel", "", `{"plugins": [{"type": "flannel"}]}`, []string{"plugins[0] flannel flannel", "plugins[0].delegate bridge bridge", "plugins[0].ipam host-local host-local"}},
		{"flannel's delegate", "", `{"plugins": [{"type": "flannel", "delegate": {"type": "macvlan", "ipam": {"type": "dhcp"}}, "ipam": {"type": "x"}}]}`,
			[]string{"plugins[0] flannel flannel", "plugins[0].delegate macvlan macvlan", "plugins[0].ipam x x"}},
		{"keys in capitals, and of other types", "", `{"Plugins": [{"TYPE": "bridge", "ipam": 7}, {"type": 8}]}`,
			[]string{"plugins[0] bridge bridge", "plugins[0].ipam  ", "plugins[1]  "}},
		{"neither", "a.conflist", `{"name": "n"}`, nil},
		{"no list", "a.conflist", `{"plugins": "bridge"}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, shown(read(t, tt.file, tt.text).All())); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := Parse("", []byte("[]"), table.Find); err == nil {
		t.Error("a list of nothing is taken for a network")
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                      "",
		`{"cniVersion": "0.4.0"}`: "0.4.0",
		`{"cniVersion": "0.4.0", "cniVersions": ["1.0.0", "0.3.1", "9.9.9"]}`: "1.0.0",
		`{"cniVersions": ["0.3.1", "0.4.0"]}`:                                 "0.4.0",
	} {
		if got := read(t, "", text).CNIVersion; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	l := read(t, "", `{"plugins": [{"type": "multus", "delegates": [{"type": "bridge", "bridge": "br7", "isGateway": true}],
		"deep": [[{"type": "macvlan", "master": "eth7"}]], "eth8": "eth9", "bridge": "ovs0"}, {"type": "flannel"}, {"type": "flannel", "delegate": {"bridge": "cbr0", "isGateway": false}},
		{"type": "vlan", "master": "eth5", "linkInContainer": true}, {"type": "host-device", "device": "eth6"}]}`)
	for link, want := range map[string]bool{"br7": true, "ovs0": true, "cni0": true, "cbr0": true, "eth7": true, "eth5": false, "eth6": true, "eth8": false, "eth9": false, "bridge": false} {
		got := false
		for _, p := range l.Inside() {
			got = got || p.Uses(link)
		}
		if got != want {
			t.Errorf("%s is used: %v, want %v", link, got, want)
		}
	}
	for text, want := range map[string]bool{`true`: true, `"True"`: true, `false`: false, `"yes"`: false, `1`: false} {
		if got := read(t, "", `{"disableCheck": `+text+`}`).IsSet("disableCheck"); got != want {
			t.Errorf("disableCheck: %s is %v", text, got)
		}
	}
	if !l.IsOn("isGateway") || l.IsOn("ipMasq") || l.IsOn("bridge") {
		t.Error("isGateway is on, and nothing else")
	}
	if on, off := l.Plugins[1].Delegate(), l.Plugins[2].Delegate(); !on.IsOn("isGateway") || off.IsOn("isGateway") {
		t.Error("flannel makes its bridge the gateway, unless the configuration says otherwise")
	}
}

// TestTwice reads objects that have a key twice, one within the other.
func TestTwice(t *testing.T) {
	const deep = 200
	l := read(t, "", `{"plugins": [`+strings.Repeat(`{"a": 1, "a": `, deep)+`{}`+strings.Repeat(`}`, deep)+`]}`)
	if got := len(l.Inside()); got != deep {
		t.Errorf("%d objects, want %d", got, deep)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("web/20-ports.conf", `{"type": "portmap"}`)
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"web.conflist", `{"name": "web", "plugins": [{"type": "bridge"}]}`, []string{" bridge bridge", " portmap portmap"}},
		{"only.conflist", `{"name": "web", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "bridge"}]}`, []string{" bridge bridge"}},
		{"folder.conflist", `{"name": "web"}`, []string{" portmap portmap"}},
		{"single.json", `{"name": "one", "type": "macvlan"}`, []string{" macvlan macvlan"}},
	} {
		path := write(tt.name, tt.text)
		var list *libcni.NetworkConfigList
		list, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		l := Of(list, path, table.Find)
		if diff := cmp.Diff(tt.want, shown(l.Plugins)); diff != "" || l.Name != list.Name || l.File != path {
			t.Errorf("%s: %q in %s\n%s", tt.name, l.Name, l.File, diff)
		}
	}
	for name, want := range map[string]string{"web": "folder.conflist", "one": "single.json", "none": ""} {
		if got := Find(dir, name); got != "" && filepath.Base(got) != want || (got == "") != (want == "") {
			t.Errorf("the file of network %s is %s, want %s", name, got, want)
		}
	}
}

// template is one of containerd's documentation.
const template = `{
  "name": "k8s-pod-network", "cniVersion": "1.0.0",
  "plugins": [
    {"type": "ptp", "mtu": 1460, "ipam": {"type": "host-local",
      "ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}],
      "routes": [{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}`

func TestTemplate(t *testing.T) {
	for text, want := range map[string]string{
		template:                          "{{range $i, $range := .PodCIDRRanges}}",
		`{"subnet": "{{.PodCIDR}}"}`:      "{{.PodCIDR}}",
		`{"subnet": "{{- .PodCIDR -}}"}`:  "{{- .PodCIDR -}}",
		`{"a": "{{ include \"x\" . }}"}`:  "",
		`{{ include "x" . | nindent 2 }}`: `{{ include "x" . | nindent 2 }}`,
		`{"plugins": [{{"type": 7}}]}`:    "",
		`{"a": {"b": {}}}`:                "",
		`{"note": "{{"}`:                  "",
		`{{/* nothing */}}`:               "",
		`{{define "x"}}{{.}}{{end}}`:      "",
		strings.Repeat("{{.}}", 1000):     "{{.}}",
		strings.Repeat("{{.}}", 1001):     "",
	} {
		got, at := Template([]byte(text))
		if got != want || !strings.HasPrefix(text[at:], got) {
			t.Errorf("%s\nis a template by %q, at %d; want %q", text, got, at, want)
		}
	}
}
