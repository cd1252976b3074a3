package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/plugins"
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

// TestStartUp measures start-up in allocations, which are the same on every machine. Go's own packages have some 50; the
// budget stands for a start of 1.35 times that of an empty program, which the benchmarks measure.
func TestStartUp(t *testing.T) {
	const budget = 400
	dir := t.TempDir()
	binary := filepath.Join(dir, "cnibox")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if len(plugins.All) == 0 {
		t.Fatal("cnibox has no plugins")
	}
	call := exec.Command(binary, plugins.All[0].Name)
	call.Env = []string{"CNI_COMMAND=VERSION", "GODEBUG=inittrace=1"}
	var trace bytes.Buffer
	call.Stderr = &trace
	if out, err := call.Output(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, &trace)
	}
	inits := initLine.FindAllStringSubmatch(trace.String(), -1)
	if len(inits) == 0 {
		t.Fatalf("Go printed no trace of the initialisation:\n%s", &trace)
	}
	total := 0
	for _, i := range inits {
		allocs, _ := strconv.Atoi(i[1])
		total += allocs
	}
	if total > budget {
		t.Errorf("the initialisation makes %d allocations, want at most %d:\n%s", total, budget, &trace)
	}
}

// TestThreads keeps a call from starting threads that it has no work for. It asks itself in a second process, as each command.
func TestThreads(t *testing.T) {
	if os.Getenv("SECOND_PROCESS") != "" {
		fmt.Println("processors:", runtime.GOMAXPROCS(0))
		return // the second process
	}
	// Without a command it is the DHCP daemon.
	for command, want := range map[string]string{"CNI_COMMAND=ADD": "processors: 1", "CNI_COMMAND=DEL": "processors: 2", "": "processors: 2"} {
		call := exec.Command(os.Args[0], "-test.run=^TestThreads$", "-test.v")
		call.Env = []string{"SECOND_PROCESS=1", "GOMAXPROCS=2", command}
		if out, err := call.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: error %v; want %q in:\n%s", command, err, want, out)
		}
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the test has no build information")
	}
	if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "DefaultGODEBUG" && strings.Contains(s.Value, "updatemaxprocs=0")
	}) {
		t.Errorf("cnibox is not built with updatemaxprocs=0: %v", info.Settings)
	}
}

// initLine matches lines such as "init os @0.32 ms, 0.020 ms clock, 416 bytes, 9 allocs".
var initLine = regexp.MustCompile(`(?m)^init .* (\d+) allocs$`)
