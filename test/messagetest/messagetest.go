// Package messagetest finds in the source of others what the table of cnictl explain says that they print.
package messagetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// folder has the table, and the list of sources.
const folder = "cmd/cnictl/internal/cmd/explain"

// Message is a row of the table, as far as it says who prints what.
type Message struct {
	ID    string
	Texts map[string][]string // by repository
}

// Source is where the texts of a repository are looked for.
type Source struct {
	In       string   // the folder with a go.mod that has the first module, or with the tests that need the programs: nothing has to be fetched
	Modules  []string // of Go. Those with a version are fetched: the newest one first, and older ones of which people still see what no newer one says
	Programs []string // of which one says it
	Read     string   // where it was read by hand: no module can be fetched that says it
}

// Table reads the messages, and the sources of the repositories that they name. root is this repository's folder.
func Table(t testing.TB, root string) (messages []Message, sources map[string]Source) {
	t.Helper()
	for file, into := range map[string]any{"messages.yaml": &messages, "testdata/sources.yaml": &sources} {
		text, err := os.ReadFile(filepath.Join(root, folder, file))
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	named := map[string]bool{}
	for _, m := range messages {
		for of := range m.Texts {
			named[of] = true
			if s, is := sources[of]; !is || s.Modules == nil && s.Programs == nil && s.Read == "" {
				t.Errorf("%s: nobody looks at %s: name it in sources.yaml", m.ID, of)
			}
		}
	}
	for of := range sources {
		if !named[of] {
			t.Errorf("sources.yaml has %s, of which no message is", of)
		}
	}
	return messages, sources
}

// Text is the source of a module in one version, or a program.
type Text struct{ Of, Text string }

// Hold finds each message in one of the texts of who prints it, and returns how many it has found by repository and text.
func Hold(t testing.TB, messages []Message, texts map[string][]Text) (found map[string]int) {
	t.Helper()
	found = map[string]int{}
	for _, m := range messages {
		for of, said := range m.Texts {
			for _, what := range said {
				i := slices.IndexFunc(texts[of], func(s Text) bool { return s.says(what) })
				switch {
				case i >= 0:
					found[of+", by "+texts[of][i].Of]++
				case texts[of] != nil:
					t.Errorf("%s: %s does not say %q", m.ID, of, what)
				}
			}
		}
	}
	return found
}

// Log prints what Hold has found.
func Log(t testing.TB, found map[string]int) (n int) {
	t.Helper()
	for _, of := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%3d %s", found[of], of)
		n += found[of]
	}
	return n
}

// says reports whether a text is in it, as it is or as a string of Go has it.
func (s Text) says(text string) bool {
	return strings.Contains(s.Text, text) || strings.Contains(s.Text, strings.Trim(strconv.Quote(text), `"`))
}

// Here returns what this machine has: the module in the version of the source's go.mod, which is fetched if need be, and programs.
func (s Source) Here(t testing.TB, root string) (texts []Text) {
	t.Helper()
	if s.In != "" && len(s.Modules) > 0 {
		name, _, _ := strings.Cut(s.Modules[0], "@")
		texts = append(texts, download(t, filepath.Join(root, s.In), name)...)
	}
	programs := ""
	for _, file := range s.Programs {
		text, _ := os.ReadFile(file) // one of them has it
		programs += string(text)
	}
	if programs != "" {
		texts = append(texts, Text{strings.Join(s.Programs, " or "), programs})
	}
	return texts
}

// Fetch returns the modules in the versions that are named.
func (s Source) Fetch(t testing.TB) (texts []Text) {
	t.Helper()
	for _, module := range s.Modules {
		if !strings.Contains(module, "@") {
			continue
		}
		texts = append(texts, download(t, t.TempDir(), module)...) // a folder of no module
	}
	return texts
}

// download returns the source of a module, in the version that it is named with, or else in that of the go.mod in a folder.
func download(t testing.TB, dir, module string) []Text {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = dir
	out, err := output(cmd)
	var got struct{ Path, Version, Dir, Error string }
	if wrong := json.Unmarshal(out, &got); wrong != nil {
		t.Fatalf("%s: %v: %v", module, cmp.Or(err, wrong), string(out))
	}
	if got.Error != "" {
		t.Errorf("%s can't be fetched: %s", module, got.Error)
		return nil
	}
	return []Text{{got.Path + "@" + got.Version, goSource(t, got.Dir)}}
}

// output is what a program prints. The error has what it complains of.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, complaint.String())
	}
	return out, err
}

// goSource is all that a module has written in Go.
func goSource(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
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
