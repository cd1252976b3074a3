package runtimes

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// messageSources are the runtimes whose messages cnictl explain knows: the folder of a go.mod that has the module, or a program.
var messageSources = map[string][2]string{
	"containerd/containerd": {"containerd", "github.com/containerd/containerd/v2"},
	"containerd/go-cni":     {"gocni", "github.com/containerd/go-cni"},
	"flannel-io/flannel":    {"../multihost/flanneld", "github.com/flannel-io/flannel"},
	"podman":                {"/usr/bin/podman", ""},
}

// TestMessages finds in the runtimes' source what the table of cnictl explain says that they print.
func TestMessages(t *testing.T) {
	table, err := os.ReadFile("../../cmd/cnictl/internal/cmd/explain/messages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var messages []struct {
		ID    string
		Texts map[string][]string
	}
	if err := yaml.Unmarshal(table, &messages); err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for name, at := range messageSources {
		sources[name] = sourceOf(t, at[0], at[1])
	}
	n := 0
	for _, m := range messages {
		for of, source := range sources {
			for _, text := range m.Texts[of] {
				n++
				if !strings.Contains(source, text) && !strings.Contains(source, strings.Trim(strconv.Quote(text), `"`)) {
					t.Errorf("%s: %s does not say %q", m.ID, of, text)
				}
			}
		}
	}
	t.Logf("%d texts", n)
	if n < 10 {
		t.Errorf("only %d texts were looked for", n)
	}
}

// sourceOf returns the source of a module, or a program.
func sourceOf(t *testing.T, at, module string) string {
	if module == "" {
		text, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	dir, err := exec.Command("go", "list", "-C", at, "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	err = filepath.WalkDir(strings.TrimSpace(string(dir)), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
