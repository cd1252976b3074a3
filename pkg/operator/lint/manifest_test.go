package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/operator/lint"
)

// definition is a NetworkAttachmentDefinition, with a configuration as YAML has it behind "config:".
func definition(name, config string) string {
	return "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  name: " + name + "\nspec:\n  config: " + config + "\n"
}

// found returns the places and codes of what is found in a file.
func found(name, text string) (list []string) {
	for _, f := range lint.Text(name, []byte(text), options) {
		list = append(list, fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Code))
	}
	return list
}

func TestManifest(t *testing.T) {
	quoted := "'{\n      \"cniVersion\": \"1.0.0\",\n      \"type\": \"macvlan\",\n      \"mastr\": \"eth0\"}'"
	literal := "|\n    {\"cniVersion\": \"1.0.0\", \"name\": \"a\",\n      \"plugins\": [{\"type\": \"macvlan\", \"mtu\": \"1400\"}]\n    }"
	for _, tt := range []struct {
		name, file, text string
		want             []string
	}{
		{"in quotes, without a name", "a.yaml", definition("a", quoted), []string{"9:7 unknown-key"}},
		{"as it is", "a.yml", definition("a", literal), []string{"8:46 wrong-type"}},
		{"several", "-", definition("a", quoted) + "---\nkind: Pod\n---\n" + definition("b", literal), []string{"9:7 unknown-key", "20:46 wrong-type"}},
		{"two that share addresses", "a.yaml", strings.Join([]string{definition("a", `'{"cniVersion": "1.0.0", "type": "ptp", `+ipam+`}'`), definition("b", `'{"cniVersion": "1.0.0", "type": "ptp", `+ipam+`}'`)}, "---\n"),
			[]string{"13:92 subnets-overlap"}},
		{"of kubectl, in JSON", "a.json", `{"apiVersion": "v1", "kind": "List", "items": [{"kind": "NetworkAttachmentDefinition", "metadata": {"name": "a"},` + "\n" +
			`"spec": {"config": "{\"cniVersion\": \"1.0.0\", \"type\": \"macvlan\",\n \"mastr\": 7}"}}]}`, []string{"2:74 unknown-key"}},
		{"no JSON", "a.yaml", definition("a", "'{\n    \"type\": bridge}'"), []string{"7:13 not-json"}},
		{"without one", "a.yaml", definition("a", `""`), []string{"6:11 config-elsewhere"}},
		{"without spec", "a.yaml", "kind: NetworkAttachmentDefinition\nmetadata: {name: a}\n", []string{"1:1 config-elsewhere"}},
		{"no string", "a.yaml", definition("a", "{type: bridge}"), []string{"6:11 wrong-type"}},
		{"no YAML behind the first", "a.yaml", definition("a", quoted) + "---\na: b: c\n", []string{"11:1 not-yaml", "9:7 unknown-key"}},
		{"of other things", "a.yaml", "kind: Pod\n", []string{"1:1 plugins-missing"}},
		{"a template", "a.conflist", "{\"cniVersion\": \"1.0.0\",\n \"type\": \"ptp\", \"ipam\": {\"type\": \"host-local\", \"subnet\": \"{{.PodCIDR}}\"}}", []string{"2:59 template"}},
		{"a template of YAML", "a.yaml", definition("{{ .Release.Name }}", quoted), []string{"4:9 template"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, found(tt.file, tt.text)); diff != "" {
				t.Errorf("%s\n%s", diff, tt.text)
			}
			if fixed, done := lint.Fix(tt.file, []byte(tt.text), options); done != nil || string(fixed) != tt.text {
				t.Errorf("it became\n%s", fixed)
			}
		})
	}
}

// TestManifestsOfDirectory: manifests with networks in them are read, and others are nobody's business.
func TestManifestsOfDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"net.yaml": definition("a", `""`), "pod.yaml": "kind: Pod\n", "values.yaml": "a: {{ .b }}\n", "broken.yml": "a: b: c\n",
		"10-a.conflist": list(bridge)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inputs, err := lint.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, in := range inputs {
		names = append(names, filepath.Base(in.Name))
	}
	if want := []string{"10-a.conflist", "net.yaml"}; !slices.Equal(names, want) {
		t.Errorf("%s are read, want %s", names, want)
	}
	if list := lint.Files(inputs, options); len(list) != 1 || list[0].Code != "config-elsewhere" {
		t.Errorf("%v", list)
	}
}
