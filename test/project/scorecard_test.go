package project

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScorecard holds what SECURITY.md says that files do for the checks of OpenSSF Scorecard.
func TestScorecard(t *testing.T) {
	workflows, err := filepath.Glob("../../.github/workflows/*")
	if err != nil || len(workflows) == 0 {
		t.Fatal(workflows, err)
	}
	for _, path := range workflows {
		text := read(t, path)
		if !strings.Contains(text, "\npermissions:\n  contents: read\njobs:") {
			t.Errorf("%s: the permissions of all jobs are not read alone", path)
		}
		if m := regexp.MustCompile(`(?m)^.*(\buses:|pull_request_target|workflow_run|: write-all).*$`).FindString(text); m != "" {
			t.Errorf("%s: %s", path, m)
		}
		if writes := regexp.MustCompile(`(?m)^.*: write\b`).FindAllString(text, -1); len(writes) > 0 && filepath.Base(path) != "release.yml" || len(writes) > 1 {
			t.Errorf("%s may %q", path, writes)
		}
	}
	policy := read(t, "../../SECURITY.md")
	for _, words := range []string{"https://github.com/cnibox/cnibox/security/", "vulnerability", "isclos", "90 days"} {
		if !strings.Contains(policy, words) {
			t.Errorf("SECURITY.md lacks %q", words)
		}
	}
	updates := read(t, "../../.github/dependabot.yml")
	for _, words := range []string{"gomod", "[/, /scripts/release]", "npm", "directory: /site"} {
		if !strings.Contains(updates, words) {
			t.Errorf("dependabot.yml lacks %q", words)
		}
	}
	for _, name := range listed(t) {
		path := filepath.Join("../..", name)
		if content := read(t, path); strings.HasPrefix(content, "\x7fELF") || strings.HasPrefix(content, "MZ\x90") || strings.HasPrefix(content, "\x00asm") {
			t.Errorf("%s is a program", path)
		}
	}
}
