package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPages makes sure that what the project's own pages lead to is there: files, sections, and make's targets.
func TestPages(t *testing.T) {
	makefile, named := read(t, "../../Makefile"), map[string]bool{}
	for _, page := range listed(t, "*.md", ":!docs/plugins", ":!docs/recipes") { // those have messages such as "make macvlan eth0"
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
		for _, m := range regexp.MustCompile("(?m)(?:`|^)make((?: [a-z][a-z0-9-]*)+)").FindAllStringSubmatch(text, -1) {
			for _, target := range strings.Fields(m[1]) {
				named[target] = true
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s: make has no target %s", page, target)
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(makefile, -1) {
		if !named[m[1]] {
			t.Errorf("no page says what `make %s` is for", m[1])
		}
	}
}

// TestRun makes sure that each folder of tests is run by a target or a script, and that the tests are there which these name: to go's tests a
// pattern that matches nothing is success.
func TestRun(t *testing.T) {
	text := read(t, "../../Makefile")
	for _, script := range listed(t, "scripts/*.sh") {
		text += read(t, "../../"+script)
	}
	var tests strings.Builder
	for _, path := range listed(t, "**_test.go") {
		tests.WriteString(read(t, "../../"+path))
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(text, -1)
	for _, several := range regexp.MustCompile(`\bTest\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(several[1], "|") {
			named = append(named, "Test"+name)
		}
	}
	for _, name := range named {
		if !regexp.MustCompile(`\nfunc ` + name + `\(`).MatchString(tests.String()) {
			t.Errorf("a target or a script runs %s, which is not there", name)
		}
	}
	for _, path := range listed(t, "test/*_test.go") {
		if dir := filepath.Dir(path); !regexp.MustCompile(regexp.QuoteMeta("./"+dir) + `\b`).MatchString(text) {
			t.Errorf("nobody runs ./%s", dir)
		}
	}
}

// wantsRoot matches what a test does that root alone can do.
var wantsRoot = regexp.MustCompile(`netlab\.Main\(|netns\.InNew\(|unix\.Unshare\(`)

// TestBuildRoot makes sure that no test wants root which a build root runs.
func TestBuildRoot(t *testing.T) {
	commands, err := exec.Command("make", "-n", "-C", "../..", "check-build-root").Output()
	if err != nil {
		t.Fatal(err)
	}
	folders := regexp.MustCompile(`\s\./(\S+)`).FindAllStringSubmatch(string(commands), -1)
	if len(folders) < 20 {
		t.Errorf("%d folders: %s", len(folders), commands)
	}
	for _, folder := range folders {
		pattern := ":(glob)" + filepath.Join(strings.Replace(folder[1], "...", "**", 1), "*_test.go")
		for _, path := range listed(t, pattern) {
			if wantsRoot.MatchString(read(t, "../../"+path)) {
				t.Errorf("a build root runs %s, which wants root", path)
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

// listed returns the files of the project that match patterns, all without one.
func listed(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", "../..", "ls-files", "--"}, patterns...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return strings.Fields(string(out))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
