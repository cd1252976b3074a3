package project

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPages makes sure that what the project's own pages lead to is there: files, sections, and make's targets.
func TestPages(t *testing.T) {
	makefile := read(t, "../../Makefile")
	for _, page := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/project/versions.md", "docs/project/dependencies.md", "docs/project/kernels.md", "docs/project/releases.md", "docs/project/packagers.md", "docs/operate/fips.md"} {
		text := read(t, "../../"+page)
		for _, m := range regexp.MustCompile(`\]\(([^):#]*)(#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
			target := "../../" + page
			if m[1] != "" {
				target = filepath.Join("../..", filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: there is no %s", page, m[1])
			} else if m[2] != "" && !sections(read(t, target))[m[2]] {
				t.Errorf("%s: %s has no section %s", page, m[1], m[2])
			}
		}
		for _, m := range regexp.MustCompile("(?m)(?:`|^)make ([a-z0-9-]+)").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: make has no target %s", page, m[1])
			}
		}
	}
}

// sections are the anchors of a page's headings, as code hosts make them.
func sections(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found["#"+strings.ReplaceAll(plain, " ", "-")] = true
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
