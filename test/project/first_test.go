package project

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFirstScreen makes sure that README.md begins with the two commands for a fresh machine and names the Go that they need, and that what it and
// the manual's first page say of installing is what the pages about it say.
func TestFirstScreen(t *testing.T) {
	readme, first := read(t, "../../README.md"), read(t, "../../docs/index.md")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readme, -1)
	if len(blocks) == 0 || !regexp.MustCompile(`^make demo .*\nmake test .*\n$`).MatchString(blocks[0][1]) {
		t.Errorf("README.md begins with %q", blocks)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))[1]
	for name, text := range map[string]string{"README.md": readme, "docs/index.md": first} {
		if !strings.Contains(text, "[Go](https://go.dev/doc/install) "+version+",") {
			t.Errorf("%s does not name Go %s", name, version)
		}
	}

	var guides strings.Builder
	pages, err := filepath.Glob("../../docs/install/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		guides.Write(text)
	}
	commands := regexp.MustCompile(`(?m)^(apt|kubectl|tar) .*$`).FindAllString(readme, -1)
	if len(commands) != 3 {
		t.Errorf("README.md has these ways to install: %q", commands)
	}
	for _, command := range commands {
		if !strings.Contains(guides.String(), "\n"+command+"\n") || !strings.Contains(first, "\n"+command+"\n") {
			t.Errorf("only README.md has %q", command)
		}
	}
}
