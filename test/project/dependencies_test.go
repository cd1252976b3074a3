// Package project tests what the project says of itself: its dependencies with their licences, and its pages for contributors.
package project

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/project/dependencies.md, but for why a module is there")

const (
	page     = "../../docs/project/dependencies.md"
	tableTop = "| module | in | licence | why |\n|---|---|---|---|\n"
)

// allowed are the licences that a module of a binary may have. They let anybody pass on the binary, with their notices.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// module is a module that is linked into a binary.
type module struct {
	programs, licences []string
}

// TestDependencies compares the page of dependencies with what the binaries are made of, and makes sure that each module may be passed on.
func TestDependencies(t *testing.T) {
	modules := linked(t)
	for name, m := range modules {
		if len(m.licences) == 0 {
			t.Errorf("%s has no licence file", name)
		}
		for _, l := range m.licences {
			if !slices.Contains(allowed, l) {
				t.Errorf("%s: licence %s is none of %s", name, l, allowed)
			}
		}
	}
	is, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(is), tableTop)
	if !ok {
		t.Fatalf("%s has no table that begins with\n%s", page, tableTop)
	}
	rows, foot, _ := strings.Cut(rest, "\n\n")
	reasons := map[string]string{}
	for row := range strings.Lines(rows) {
		if cells := strings.Split(row, "|"); len(cells) > 4 {
			reasons[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[4])
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if reasons[name] == "" {
			t.Errorf("%s does not say why %s is there", page, name)
		}
		m := modules[name]
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.Join(m.programs, ", "), strings.Join(m.licences, ", "), reasons[name]))
	}
	want := head + tableTop + strings.Join(lines, "\n") + "\n\n" + foot
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(string(is), "\n"), strings.Split(want, "\n")); diff != "" {
		t.Errorf("%s is not what the binaries are made of: run make dependencies, and say why a new module is there\n-page +now:\n%s", page, diff)
	}
}

// linked are the modules of both binaries. Licences are those of the module, and those beside its packages that are linked.
func linked(t *testing.T) map[string]*module {
	t.Helper()
	modules := map[string]*module{}
	for _, program := range []string{"cnibox", "cnictl"} {
		list := exec.Command("go", "list", "-deps", "-f", "{{$dir := .Dir}}{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}\t{{$dir}}{{end}}{{end}}", "../../cmd/"+program)
		list.Env = append(os.Environ(), "CGO_ENABLED=0")
		var stderr bytes.Buffer
		list.Stderr = &stderr
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, &stderr)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			if len(f) < 3 {
				continue // of Go, or our own
			}
			m := modules[f[0]]
			if m == nil {
				m = &module{}
				modules[f[0]] = m
			}
			m.programs = sorted(m.programs, program)
			for dir := f[2]; strings.HasPrefix(dir, f[1]); dir = filepath.Dir(dir) {
				m.licences = sorted(m.licences, licencesIn(t, dir)...)
			}
		}
	}
	return modules
}

// licenceFile matches the names that files with licences have.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([-.].*)?$`)

func licencesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, licence(string(text)))
	}
	return found
}

// known are words that a licence has and no other one has, without blanks and capitals. The first that fits is it.
var known = []struct{ name, words string }{
	// Its text names the GNU licences, too.
	{"MPL-2.0", "mozilla public license, version 2.0"},
	{"MPL-2.0", "mozilla public license version 2.0"},
	{"AGPL", "gnu affero general public license"},
	{"LGPL", "gnu lesser general public license"},
	{"GPL", "gnu general public license version"},
	{"Apache-2.0", "apache license version 2.0, january 2004"},
	{"Apache-2.0", "licensed under the apache license, version 2.0"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"},
	{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
	{"Unlicense", "this is free and unencumbered software released into the public domain"},
}

// licence returns the SPDX name of a licence, or "unknown".
func licence(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	for _, k := range known {
		if strings.Contains(text, k.words) {
			return k.name
		}
	}
	if strings.Contains(text, "redistribution and use in source and binary forms, with or without modification, are permitted") {
		if regexp.MustCompile(`neither the names? of|may not be used to endorse`).MatchString(text) {
			return "BSD-3-Clause"
		}
		return "BSD-2-Clause"
	}
	return "unknown"
}

// TestLicence makes sure that what we may not pass on is told from what we may.
func TestLicence(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Apache License\n   Version 2.0, January 2004\n", "Apache-2.0"},
		{"Mozilla Public License, version 2.0\n\n1. Definitions", "MPL-2.0"},
		{"The MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of\nthis software", "MIT"},
		{"Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that: 3. Neither the name of X", "BSD-3-Clause"},
		{"Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that: 1. 2.", "BSD-2-Clause"},
		{"GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007", "GPL"},
		{"GNU AFFERO GENERAL PUBLIC LICENSE", "AGPL"},
		{"Business Source License 1.1", "unknown"},
		{"All rights reserved.", "unknown"},
	} {
		if got := licence(c.text); got != c.want {
			t.Errorf("%q is %s, want %s", c.text, got, c.want)
		}
	}
}

// sorted adds what is not in a list.
func sorted(list []string, more ...string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append(list, more...))))
}
