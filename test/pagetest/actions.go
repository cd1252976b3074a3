package pagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Action is a command that a page shows, or a file that it has the reader write.
type Action struct {
	command string
	code    string   // the exit code that the command has
	file    string   // the file's path
	text    string   // what is in it
	prints  []string // lines that the page shows below the command
	untold  bool     // the page does not show what the command prints
}

var (
	tabs  = regexp.MustCompile(`(?s)<!-- tabs -->\n(.*?)<!-- end of tabs -->\n`)
	block = regexp.MustCompile("(?ms)^(?:(?:Write|k3s writes) this to `([^`]+)`[^\n]*:\n\n)?```(\\w*)\n(.*?)^```$")
)

// Actions returns what a page has its reader do, in order: files to write, and the commands behind a "$ " of its console blocks. `# 1` behind a command
// is the exit code that it has.
func Actions(t testing.TB, page string) (actions []Action) {
	t.Helper()
	return actionsOf(t, read(t, page), "console")
}

// AllActions are those of sh blocks, too, which are commands alone, and of one of several tabs. A block that has nothing to do fails the test.
func AllActions(t testing.TB, page, tab string) []Action {
	t.Helper()
	text := tabs.ReplaceAllStringFunc(read(t, page), func(all string) string {
		chosen := regexp.MustCompile(`(?s)\*\*` + regexp.QuoteMeta(tab) + "\\*\\*\n\n(```.*?\n```\n)").FindStringSubmatch(all)
		if chosen == nil {
			t.Fatalf("%s has no tab %s", page, tab)
		}
		return chosen[1]
	})
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if m[1] == "" && m[2] != "sh" && m[2] != "console" {
			t.Errorf("%s has a block that nobody can do:\n%s", page, m[0])
		}
	}
	return actionsOf(t, text, "console", "sh")
}

func read(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func actionsOf(t testing.TB, page string, languages ...string) (actions []Action) {
	t.Helper()
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		file, language, text := m[1], m[2], m[3]
		switch {
		case file != "":
			actions = append(actions, Action{file: file, text: text})
			continue
		case !slices.Contains(languages, language):
			continue
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			command, is := strings.CutPrefix(line, "$ ")
			if !is && language == "console" {
				last := &actions[len(actions)-1]
				last.prints = append(last.prints, line)
				continue
			}
			command, code, has := strings.Cut(command, " # ")
			if !has || language == "sh" {
				code = "0"
			}
			actions = append(actions, Action{command: command, code: code, untold: language == "sh"})
		}
	}
	if len(actions) < 3 {
		t.Fatalf("there are %d actions in\n%s", len(actions), page)
	}
	return actions
}

// Script does the actions in one bash, and ends at the first whose exit code is not the one that the page has.
func Script(actions []Action) string {
	var script strings.Builder
	for i, a := range actions {
		fmt.Fprintf(&script, "echo '@@ %d'\n", i)
		if a.file != "" {
			fmt.Fprintf(&script, "mkdir -p %s && cat >%s <<'END OF THE FILE' || exit 1\n%sEND OF THE FILE\n", filepath.Dir(a.file), a.file, a.text)
			continue
		}
		fmt.Fprintf(&script, "%s\ncode=$?; [ $code = %s ] || { echo \"the exit code is $code\"; exit 1; }\n", a.command, a.code)
		if m := published.FindStringSubmatch(a.command); m != nil {
			fmt.Fprintf(&script, "until curl -s -o /dev/null http://127.0.0.1:%s/; do kill -0 $! || exit 1; done\n", m[1])
		}
	}
	return script.String()
}

// published finds the port of a server that goes on in the background.
var published = regexp.MustCompile(`-p (\d+):\d+ .*&$`)

// Compare makes sure that the script of the actions has printed what the page shows.
func Compare(t testing.TB, actions []Action, printed string) {
	t.Helper()
	parts := strings.Split(printed, "@@ ")[1:]
	for i, a := range actions {
		_, got, _ := strings.Cut(parts[i], "\n")
		if shown := strings.Join(a.prints, "\n"); a.file == "" && !a.untold && !LooksLike(usual(got), usual(shown)) {
			t.Errorf("$ %s\nprints\n%s\nthe page has\n%s", a.command, got, shown)
		}
	}
}

// differing is what is not the same from one time to the next.
var differing = []struct {
	pattern *regexp.Regexp
	same    string
}{
	{regexp.MustCompile(`veth[0-9a-f]{8}`), "VETH"},
	{regexp.MustCompile(`@if\d+`), "@ifN"},
	{regexp.MustCompile(`\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`), "MAC"},
	{regexp.MustCompile(`\bfe80:\S+`), "LINKLOCAL"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "DATE"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(ms|s|m|h|d|us)\b`), "TIME"},
	{regexp.MustCompile(`inode \d+, process \d+`), "PROCESS"},
	{regexp.MustCompile(`\d+ (plugins in|files from) /`), "N $1"}, // with cnibox-etcd there is one more
	{regexp.MustCompile(`\b\d+ checks\b`), "N checks"},
	{regexp.MustCompile(` +`), " "},
}

// usual returns text with what differs from one time to the next made the same: names of links, times, and the width of columns.
func usual(text string) string {
	for _, m := range differing {
		text = m.pattern.ReplaceAllString(text, m.same)
	}
	return text
}
