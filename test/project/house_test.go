package project

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cnibox/cnibox/"

// imports returns what each package of the module imports of it, as paths below the module.
func imports(t *testing.T, patterns ...string) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", slices.Concat([]string{"list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`}, patterns)...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	list := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		var names []string
		for _, name := range strings.Fields(line) {
			if name, ours := strings.CutPrefix(name, module); ours {
				names = append(names, name)
			}
		}
		list[names[0]] = names[1:]
	}
	return list
}

// linked adds what a package imports, directly or not.
func linked(list map[string][]string, name string, all map[string]bool) map[string]bool {
	for _, i := range list[name] {
		if !all[i] {
			all[i] = true
			linked(list, i, all)
		}
	}
	return all
}

// floor is the length of the longest way down from a package of pkg, of packages that import each other.
func floor(list map[string][]string, name string) int {
	deepest := 0
	for _, i := range list[name] {
		if strings.HasPrefix(i, "pkg/") {
			deepest = max(deepest, floor(list, i))
		}
	}
	return deepest + 1
}

// TestHouse keeps what architecture.md says of who imports whom. It prints how large the house is, for `go test -v`.
func TestHouse(t *testing.T) {
	list := imports(t, "./cmd/...", "./pkg/...", "./plugins/...")
	rooms, floors, arrows := 0, 0, 0
	for name, all := range list {
		for _, i := range all {
			switch {
			case strings.HasPrefix(name, "pkg/") && !strings.HasPrefix(i, "pkg/"):
				t.Errorf("%s imports %s: pkg/ imports neither plugins/ nor cmd/", name, i)
			case pluginOf(name) != "" && pluginOf(i) != "" && pluginOf(name) != pluginOf(i):
				t.Errorf("%s imports %s: a plugin delegates to another one", name, i)
			case commandOf(i) != "" && commandOf(name) != commandOf(i) && name != "cmd/cnictl":
				t.Errorf("%s imports %s: what several commands need stands in cmd/cnictl/internal", name, i)
			}
		}
		if strings.HasPrefix(name, "pkg/") {
			rooms, arrows, floors = rooms+1, arrows+len(all), max(floors, floor(list, name))
		}
	}
	for _, program := range []string{"cmd/cnibox", "cmd/cnibox-etcd"} {
		for name := range linked(list, program, map[string]bool{}) {
			if strings.HasPrefix(name, "pkg/operator/") {
				t.Errorf("%s links %s, which is for cnictl", program, name)
			}
		}
	}
	t.Logf("pkg: %d packages, on %d floors, with %d imports of each other", rooms, floors, arrows)
}

// pluginOf returns the folder of the plugin that a package belongs to, "" for others.
func pluginOf(name string) string {
	return regexp.MustCompile(`^plugins/(main|ipam|meta)/\w+`).FindString(name)
}

// commandOf returns the folder of cnictl's command that a package belongs to, "" for others.
func commandOf(name string) string {
	return regexp.MustCompile(`^cmd/cnictl/internal/cmd/\w+`).FindString(name)
}

// readsHost is how somebody asks the kernel what the host has of links, addresses, routes, rules, mounts or processes.
var readsHost = regexp.MustCompile(`\.(LinkList|AddrList|RouteList\w*|RuleList)\(|\blink\.(List|Addresses|Routes|Rules|OfKind)\(|net\.Interfaces\(|mountinfo|"/proc"\)|/proc/(\*|\[0-9\])`)

// TestHost: what is on the host the operator's tools ask pkg/operator/node, which reads it once.
func TestHost(t *testing.T) {
	for _, dir := range []string{"../../pkg/operator", "../../cmd/cnictl"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == "../../pkg/operator/node" {
				return err
			}
			if found := readsHost.FindAllString(read(t, path), -1); found != nil {
				t.Errorf("%s reads the host itself (%q): ask node.Host", path, found)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnProcesses: tests that read a whole node see their own processes and namespaces alone, and not those of other tests and of the machine.
func TestOwnProcesses(t *testing.T) {
	reads := regexp.MustCompile(`\b(node\.Read|presence\.NewHost)\(`)
	tests := map[string]string{} // by folder
	for _, path := range listed(t, "cmd/**_test.go", "pkg/**_test.go", "plugins/**_test.go") {
		tests[filepath.Dir(path)] += read(t, "../../"+path)
	}
	for dir, text := range tests {
		if reads.MatchString(text) && !strings.Contains(text, "netlab.Main(m)") {
			t.Errorf("%s has no TestMain that calls netlab.Main", dir)
		}
	}
}

// onMap returns the folder that the map of architecture.md shows in place of a package: each package of pkg/, and elsewhere what a newcomer looks for.
func onMap(name string) string {
	return regexp.MustCompile(`^(pkg/.*|cmd/cnictl/internal/\w+|cmd/[\w-]+|test/\w+|plugins)`).FindString(name)
}

// TestMap compares the map of architecture.md with what is there, and wants each package to say what it is for.
func TestMap(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "../../docs/project/architecture.md"), "```\n")
	text, _, _ = strings.Cut(text, "```")
	shown, there := map[string]bool{}, map[string]bool{}
	section, room := "", ""
	for _, entry := range regexp.MustCompile(`(?m)^( {0,4})([\w/-]+)`).FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(entry[2], "/")
		switch indent := len(entry[1]); {
		case indent == 0:
			section = name
			shown[onMap(section)] = !strings.HasPrefix(section, "pkg") // a heading
		case indent == 2:
			room = section + "/" + name
			shown[onMap(room)] = true
		case indent == 4:
			shown[onMap(room+"/"+name)] = true
		}
	}
	for name := range imports(t, "./cmd/...", "./pkg/...", "./plugins/...", "./test/...") {
		there[onMap(name)] = true
	}
	for name := range there {
		if !shown[name] {
			t.Errorf("the map of architecture.md lacks %s", name)
		}
	}
	delete(shown, "")
	for name, isPackage := range shown {
		if isPackage && !there[name] {
			t.Errorf("the map of architecture.md has %s, which is not there", name)
		}
	}
	cmd := exec.Command("go", "list", "-f", `{{if not .Doc}}{{.ImportPath}}{{end}}`, "./pkg/...", "./plugins/...", "./cmd/...")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	if len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("packages that do not say what they are for:\n%s", out)
	}
}
