package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/scripts/licences"
)

// noticesFile has the licence texts of all that is linked: their licences ask that they go with a binary.
const noticesFile = "THIRD-PARTY-LICENSES"

// notices writes the licence texts of all modules into the tree, each text once.
func notices(r Release) error {
	texts := map[string][]string{} // to who has it
	root, errRoot := exec.Command("go", "env", "GOROOT").Output()
	goLicence, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))
	if err := cmp.Or(errRoot, err); err != nil {
		return err
	}
	texts[string(goLicence)] = []string{"Go's standard library"}
	for _, arch := range r.Arches {
		modules, err := licences.Linked(r.Source, arch)
		if err != nil {
			return err
		}
		for path, m := range modules {
			for _, file := range m.Files {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				texts[string(text)] = append(texts[string(text)], path+" "+m.Version)
			}
		}
	}
	var sections []string
	for text, of := range texts {
		of = slices.Compact(slices.Sorted(slices.Values(of)))
		sections = append(sections, fmt.Sprintf("%s\n\n%s\n", strings.Join(of, "\n"), strings.TrimRight(text, "\n")))
	}
	slices.Sort(sections)
	line := "\n" + strings.Repeat("=", 80) + "\n\n"
	head := "What is linked into the programs, and the licences of it. The source of each module is what `go mod download MODULE@VERSION` fetches.\n"
	return os.WriteFile(filepath.Join(r.Tree, "share/doc", noticesFile), []byte(head+line+strings.Join(sections, line)), 0o644)
}
