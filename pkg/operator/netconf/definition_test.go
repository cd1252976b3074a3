package netconf

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// manifest has a configuration in each of the forms that a string can have.
const manifest = `# networks
kind: NetworkAttachmentDefinition
spec:
  config: |
    {
      "type": "bridge", "x": "a  b"
    }
---
kind: NetworkAttachmentDefinition
spec:
  config: !!str '{
      "cniVersion": "1.0.0", "o''clock": "ü''",

      "type": "bridge"
    }'
---
kind: NetworkAttachmentDefinition
spec: {config: "{\"cniVersion\": \"1.0.0\",\n  \"\x75\u0075\": \"\\\"\",\
    \"type\": \"bridge\"}"}
---
kind: NetworkAttachmentDefinition
spec:
  config: >-  # one line
    {"cniVersion": "1.0.0",
    "type": "bridge"}
`

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
