package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReleasesPage makes sure that docs/project/releases.md has a row for each file of bin/release, and a file for each row but those that need a
// key or a list of vulnerabilities.
func TestReleasesPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/project/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(made)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{} // patterns of names, and whether there is such a file
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			pattern := strings.NewReplacer("ARCH", `[a-z0-9_]+`, "VERSION", `v?[0-9][^-]*`, `…`, `.*`).Replace(regexp.QuoteMeta(name[1]))
			rows["^"+pattern+"$"] = regexp.MustCompile(`\.sig$|\.pub$|openvex|intoto`).MatchString(name[1])
		}
	}
	for _, file := range files {
		known := file.IsDir()
		for pattern := range rows {
			if regexp.MustCompile(pattern).MatchString(file.Name()) {
				known, rows[pattern] = true, true
			}
		}
		if !known {
			t.Errorf("the page does not say what %s is", file.Name())
		}
	}
	for pattern, is := range rows {
		if !is {
			t.Errorf("there is no file %s", pattern)
		}
	}
}
