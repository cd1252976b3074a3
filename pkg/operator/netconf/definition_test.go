package netconf

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// manifest has a configuration in each of the forms that a string can have.
const manifest = `# networks
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: literal
spec:
  config: |
    {
      "cniVersion": "1.0.0",
      "type": "bridge", "x": "a  b"
    }
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: single, namespace: default}
spec:
  config: !!str '{
      "cniVersion": "1.0.0", "o''clock": "ü''",

      "type": "bridge"
    }'
---
kind: NetworkAttachmentDefinition
metadata: {name: double}
spec: {config: "{\"cniVersion\": \"1.0.0\",\n  \"\x75\u0075\": \"\\\"\",\
    \"type\": \"bridge\"}"}
---
kind: NetworkAttachmentDefinition
metadata: {name: folded}
spec:
  config: >-  # one line
    {"cniVersion": "1.0.0",
    "type": "bridge"}
---
kind: NetworkAttachmentDefinition
metadata: {name: none}
---
kind: NetworkAttachmentDefinition
metadata: {name: empty}
spec: {config: " "}
---
kind: NetworkAttachmentDefinition
metadata: {name: no-text}
spec: {config: {type: bridge}}
`

func TestDefinitions(t *testing.T) {
	list, err := Definitions([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	// The line of the text in which each configuration names its plugin, 0 if it has none.
	want := []struct {
		name string
		line int
	}{{"literal", 14}, {"single", 24}, {"double", 30}, {"folded", 37}, {"none", 0}, {"empty", 0}, {"no-text", 0}}
	if len(list) != len(want) {
		t.Fatalf("%d definitions, want %d", len(list), len(want))
	}
	for i, d := range list {
		if d.Name != want[i].name || d.IsText != (d.Name != "no-text") || (d.Config == "") != (want[i].line == 0) {
			t.Errorf("got %+v, want %v", d, want[i])
			continue
		}
		if d.Config == "" {
			continue
		}
		if l := read(t, "", d.Config); len(l.Plugins) != 1 || l.Plugins[0].Kind != "bridge" {
			t.Errorf("%s: %s", d.Name, d.Config)
		}
		for _, word := range []string{"type", "bridge", "cniVersion", "}"} {
			at := d.Offset(strings.LastIndex(d.Config, word))
			if !strings.HasPrefix(manifest[at:], word) {
				t.Errorf("%s: %q is at %q", d.Name, word, manifest[at:min(at+20, len(manifest))])
			}
		}
		if line := 1 + strings.Count(manifest[:d.Offset(strings.Index(d.Config, `"bridge"`))], "\n"); line != want[i].line {
			t.Errorf("%s: the plugin is in line %d, want %d", d.Name, line, want[i].line)
		}
	}
}

// TestKubectl reads what kubectl prints: several objects as items of one, in JSON or YAML.
func TestKubectl(t *testing.T) {
	text := "{\n\t\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n\t\t" +
		`{"kind": "NetworkAttachmentDefinition", "metadata": {"name": "a"}, "spec": {"config": "{\"type\": \"macvlan\",\n\t\"master\": \"\u0065th0\"}"}},` + "\n\t\t" +
		`{"kind": "NetworkAttachmentDefinition", "metadata": {"name": "b"}}]}`
	list, err := Definitions([]byte(text))
	if err != nil || len(list) != 2 || list[0].Config != "{\"type\": \"macvlan\",\n\t\"master\": \"eth0\"}" || list[1].Name != "b" {
		t.Fatalf("%+v, %v", list, err)
	}
	for is, stands := range map[string]string{"eth0": `\u0065th0`, "th0": "th0", "}": "}"} {
		if at := list[0].Offset(strings.Index(list[0].Config, is)); !strings.HasPrefix(text[at:], stands) {
			t.Errorf("%q is at %q", is, text[at:])
		}
	}
	if _, err := Definitions([]byte("kind: NetworkAttachmentDefinition\nspec: {config: '{}\n")); err == nil {
		t.Error("a string without an end is taken")
	}
}

func TestIsManifest(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       bool
	}{
		{"a.yaml", "", true},
		{"a.yml", "{", true},
		{"a.conflist", manifest, false},
		{"a.conf", manifest, false},
		{"a.json", `{"apiVersion": "v1", "kind": "List"}`, true},
		{"a.json", `{"type": "bridge"}`, false},
		{"a.json", "kind: NetworkAttachmentDefinition", false},
		{"-", "kind: NetworkAttachmentDefinition", true},
		{"-", "kind: Pod", true},
		{"-", "apiVersion: v1\nitems: []\nkind: List\n", true},
		{"-", "name: lan", false},
		{"-", "---\n# nothing\n---\nkind: NetworkAttachmentDefinition", true},
		{"-", "{", false},
	} {
		if got := IsManifest(tt.name, []byte(tt.text)); got != tt.want {
			t.Errorf("%s with %.20q: %v", tt.name, tt.text, got)
		}
	}
}

// FuzzRead reads anything in all ways. What libcni takes as a list is one here, with as many plugins; each byte of a definition's configuration
// stands somewhere in the text, none before the one before.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		manifest, template, `{"name": "n", "plugins": [{"type": "chain", "plugins": [{"type": "flannel", "delegate": {}}]}, {"type": "x", "ipam": {"type": "y"}}]}`,
		`{"name": "n", "type": "bridge", "a": [[{}, {"type": "flannel"}], [7]]}`, `{"apiVersion": "v1", "kind": "List", "items": [{"kind": "NetworkAttachmentDefinition"}]}`,
		"kind: NetworkAttachmentDefinition\nspec: {config: &a \"\\x41\\", "kind: &a NetworkAttachmentDefinition\nitems: [*a]\nspec: &b {config: *a, spec: *b}",
		"kind: NetworkAttachmentDefinition\r\nspec:\r\n  config: |2\r\n      {\r\n", "{{if}}", "{{range .}}{{end}}", "{{.a}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"", "a.conflist", "a.conf"} {
			l, err := Parse(name, text, table.Find)
			if err != nil {
				continue
			}
			l.All()
			for _, p := range l.Inside() {
				p.Uses("cni0")
			}
			list, err := libcni.NetworkConfFromBytes(text)
			if name == "a.conflist" && err == nil && isPlain(string(text)) && len(list.Plugins) != len(l.Plugins) {
				t.Errorf("libcni reads %d plugins, and this %d", len(list.Plugins), len(l.Plugins))
			}
		}
		if action, at := Template(text); !strings.HasPrefix(string(text[at:]), action) {
			t.Errorf("the action %q is not at %d", action, at)
		}
		IsManifest("", text)
		list, _ := Definitions(text)
		for _, d := range list {
			before := 0
			for i := range len(d.Config) + 1 {
				at := d.Offset(i)
				if at < before || at > len(text)+1 {
					t.Fatalf("byte %d of %q is at %d of %d, behind %d", i, d.Config, at, len(text), before)
				}
				before = at
			}
		}
	})
}

// isPlain reports whether a list has its plugins once, and under a key as libcni wants it.
func isPlain(text string) bool {
	return strings.Count(text, `"plugins"`) == 1 && strings.Count(strings.ToLower(text), "plugins") == 1 && !strings.Contains(text, "null") && !strings.Contains(text, `\`)
}
