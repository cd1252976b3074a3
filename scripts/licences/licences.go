// Package licences knows which modules are linked into the programs, and under which licences.
package licences

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Module is a module of others that is linked into a program.
type Module struct {
	Version            string
	Programs, Licences []string
	Files              []string // with the texts of its licences, and notices that have to go with them
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([-.].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice([-.].*)?$`)
)

// programs are what is linked, each with what `go list` is told to find its packages. The last one is a test binary.
var programs = map[string][]string{
	"cnibox": {"./cmd/cnibox"}, "cnibox-etcd": {"./cmd/cnibox-etcd"}, "cnictl": {"./cmd/cnictl"}, "cni-conformance": {"-test", "./test/conformance"},
}

// Linked are the modules of all programs for an architecture, by their paths. Licences are those of the module, and those beside its packages
// that are linked. root is the directory of the product's go.mod.
func Linked(root, arch string) (map[string]*Module, error) {
	modules := map[string]*Module{}
	for program, packages := range programs {
		list := exec.Command("go", append([]string{"list", "-deps", "-f",
			"{{$dir := .Dir}}{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$dir}}{{end}}{{end}}"}, packages...)...)
		list.Dir, list.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		var stderr bytes.Buffer
		list.Stderr = &stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			if len(f) < 4 {
				continue // of Go, or our own
			}
			m := modules[f[0]]
			if m == nil {
				m = &Module{Version: f[1]}
				modules[f[0]] = m
			}
			m.Programs = sorted(m.Programs, program)
			for dir := f[3]; strings.HasPrefix(dir, f[2]); dir = filepath.Dir(dir) {
				if err := m.add(dir); err != nil {
					return nil, err
				}
			}
		}
	}
	return modules, nil
}

// add adds the licences in a directory.
func (m *Module) add(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		isLicence := licenceFile.MatchString(e.Name())
		if e.IsDir() || strings.HasSuffix(e.Name(), ".go") || !isLicence && !noticeFile.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		m.Files = sorted(m.Files, path)
		if !isLicence {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		m.Licences = sorted(m.Licences, Name(string(text)))
	}
	return nil
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

// Name returns the SPDX name of the licence that has this text, or "unknown".
func Name(text string) string {
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

// sorted adds what is not in a list.
func sorted(list []string, more ...string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append(list, more...))))
}
