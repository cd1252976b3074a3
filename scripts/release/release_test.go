package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
)

// made is what `make release` has made.
const made = "../../bin/release"

// artefacts are the files of bin/release that a pattern matches: at least one.
func artefacts(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(made, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("there is no %s in %s: run make release before", pattern, made)
	}
	return paths
}

// TestManualPages makes sure that each command that cnictl shows has a page, and each page a command.
func TestManualPages(t *testing.T) {
	var want []string
	for _, command := range commandsBelow(t, "cnictl") {
		want = append(want, strings.ReplaceAll(command, " ", "-")+".1")
	}
	var pages []string
	for _, path := range artefacts(t, "tree/share/man/man1/*") {
		pages = append(pages, filepath.Base(path))
		text, err := os.ReadFile(path)
		command := strings.TrimSuffix(filepath.Base(path), ".1")
		if err != nil || !strings.Contains(string(text), ".SH NAME\n"+command+" - ") || !strings.Contains(string(text), ".SH OPTIONS\n") {
			t.Errorf("%s: %v: no page of %s with its options:\n%s", path, err, command, text)
		}
	}
	slices.Sort(want)
	if !slices.Equal(pages, want) {
		t.Errorf("pages:\n%s\ncommands:\n%s", pages, want)
	}
}

// commandsBelow is a command of cnictl with all below it, as its help lists them.
func commandsBelow(t *testing.T, command string) []string {
	t.Helper()
	words := strings.Fields(command)
	help, err := exec.Command("../../bin/cnictl", append(words[1:], "--help")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := []string{command}
	_, list, _ := strings.Cut(string(help), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z0-9-]+) `).FindAllStringSubmatch(list, -1) {
		if m[1] != "help" { // cobra makes no page of it
			all = append(all, commandsBelow(t, command+" "+m[1])...)
		}
	}
	return all
}

// TestSBOM compares each SBOM with what `go version -m` says of the programs.
func TestSBOM(t *testing.T) {
	for _, path := range artefacts(t, "*.spdx.json") {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		doc, err := json.Read(file)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		packages := map[spdx.ElementID]*spdx.Package{}
		for _, p := range doc.Packages {
			packages[p.PackageSPDXIdentifier] = p
			if p.PackageLicenseDeclared == "" {
				t.Errorf("%s: %s has no licence", path, p.PackageName)
			}
			has := slices.ContainsFunc(p.PackageExternalReferences, func(r *spdx.PackageExternalReference) bool {
				return r.RefType == "cpe23Type" && strings.HasSuffix(r.Locator, ":"+strings.TrimPrefix(p.PackageVersion, "v")+":*:*:*:*:*:*:*")
			})
			if want := p.PackageName == "stdlib" || p.PrimaryPackagePurpose == "APPLICATION"; has != want {
				t.Errorf("%s: %s has a CPE: %v, want %v: %v", path, p.PackageName, has, want, p.PackageExternalReferences)
			}
		}
		has := map[string][]string{}
		for _, r := range doc.Relationships {
			if to := packages[r.RefB.ElementRefID]; to == nil {
				t.Errorf("%s: %s is related to %s, which is not there", path, r.RefA.ElementRefID, r.RefB.ElementRefID)
			} else if r.Relationship == "DEPENDS_ON" {
				from := packages[r.RefA.ElementRefID].PackageName
				has[from] = append(has[from], to.PackageName+" "+to.PackageVersion)
			}
		}
		archive, rest, _ := strings.Cut(filepath.Base(path), "-linux-")
		arch, _, _ := strings.Cut(rest, "-")
		in := programs
		if archive == conformance {
			in = []string{conformance}
		}
		for _, program := range in {
			want := linkedInto(t, filepath.Join(made, "tree/linux-"+arch, program))
			if program == conformance { // go version -m does not know
				listed, err := exec.Command("go", "list", "-C", "../..", "-deps", "-test", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./test/conformance").Output()
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, slices.DeleteFunc(strings.Split(string(listed), "\n"), func(line string) bool { return line == "" })...)
				slices.Sort(want)
				want = slices.Compact(want)
			}
			slices.Sort(has[program])
			if !slices.Equal(has[program], want) {
				t.Errorf("%s: %s has\n%q, want\n%q", path, program, has[program], want)
			}
		}
	}
}

// linkedInto asks Go which modules are in a program.
func linkedInto(t *testing.T, path string) (list []string) {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		t.Fatalf("go version -m %s: %v", path, err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.HasPrefix(f[1], "go1") {
			list = append(list, "stdlib "+strings.TrimPrefix(f[1], "go"))
		}
		if len(f) > 2 && f[0] == "dep" {
			list = append(list, f[1]+" "+f[2])
		}
	}
	slices.Sort(list)
	return list
}

// TestNotices makes sure that the licence of each module that is linked goes with the programs, and Go's own.
func TestNotices(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(made, "tree/share/doc", noticesFile))
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), strings.Repeat("=", 80)+"\n\n")
	for _, program := range artefacts(t, "tree/linux-*/*") {
		for _, module := range linkedInto(t, program) {
			if strings.HasPrefix(module, "stdlib ") {
				module = "Go's standard library"
			}
			if !slices.ContainsFunc(sections, func(s string) bool { return licenceIn(s, module) }) {
				t.Errorf("%s has %s, and %s has no licence of it", program, module, noticesFile)
			}
		}
	}
	for _, words := range []string{"Copyright 2009 The Go Authors", "Version 2.0, January 2004", "Aliaksandr Valialkin"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("%s lacks %q", noticesFile, words)
		}
	}
}

// licenceIn tells whether a section is headed by a module and has a text.
func licenceIn(section, module string) bool {
	names, licence, _ := strings.Cut(section, "\n\n")
	return slices.Contains(strings.Split(names, "\n"), module) && len(licence) > 500
}
