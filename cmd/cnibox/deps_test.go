package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the list of packages that cnibox is made of")

const listFile = "deps.txt"

const listHead = `# The packages that cnibox is made of, without our own and those internal to Go.
# Each one's initialisation is part of every call of every plugin: think before adding.
# go test ./cmd/cnibox -run TestPackages -update
`

func TestPackages(t *testing.T) {
	got := packages(t)
	if *update {
		if err := os.WriteFile(listFile, []byte(listHead+strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(listFile)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(strings.TrimPrefix(string(text), listHead), "\n"), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cnibox is made of other packages than %s says; if they are wanted: go test ./cmd/cnibox -run TestPackages -update\n-list +now:\n%s", listFile, diff)
	}
}

// ours is the path that our own packages begin with.
const ours = "github.com/cnibox/cnibox/"

// packages are all packages of the binary, but our own and those internal to
// Go, which change from version to version.
func packages(t *testing.T) []string {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-f", "{{if .Standard}}std {{end}}{{.ImportPath}}", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		name, std := strings.CutPrefix(strings.TrimSpace(line), "std ")
		if strings.HasPrefix(name, ours) {
			continue
		}
		if std && slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return s == "internal" || s == "vendor" }) {
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
