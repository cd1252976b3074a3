package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// shows runs what a page's section "Example" has in blocks marked console, on a node with the example's container, and compares what is
// printed. In the page `…` stands for what differs from node to node, alone on a line for any lines. How many spaces there are does not count.
func shows(t *testing.T, host *netlab.Host, page string) {
	t.Helper()
	_, section, _ := strings.Cut(page, "\n## Example\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(section, -1) {
		for _, example := range strings.Split("\n"+m[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimRight(example, "\n"), "\n")
			got, err := host.Output(exec.Command("sh", "-c", command))
			if err != nil {
				t.Errorf("$ %s\n%v", command, err)
			} else if !shown(want).MatchString(got) {
				t.Errorf("$ %s\nprints\n%s\nand in the page is\n%s", command, got, want)
			}
		}
	}
}

// shown returns what matches the output that a page shows.
func shown(text string) *regexp.Regexp {
	pattern := "^"
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "…" {
			pattern += `(?:.*\n)*`
			continue
		}
		words := strings.Fields(regexp.QuoteMeta(line))
		pattern += `\s*` + strings.ReplaceAll(strings.Join(words, `\s+`), "…", ".*") + `[ \t]*\n`
	}
	return regexp.MustCompile(pattern + "$")
}

func TestShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page, printed string
		want          bool
	}{
		{"eth0@… UP 10.0.0.2/24 …", "eth0@if7         UP             10.0.0.2/24 fe80::1/64 \n", true},
		{"eth0@… UP 10.0.0.2/24 …", "eth0@if7         DOWN           10.0.0.2/24 fe80::1/64 \n", false},
		{"eth0 UP", "eth0 UP\neth1 UP\n", false},
		{"…\neth1 UP", "eth0 UP\neth1 UP\n", true},
		{"eth0 UP\n…", "eth0 UP\n", true},
		{"{\n\ta.b\n}", "{\n    a.b\n}\n", true},
		{"a.b", "aXb\n", false},
	} {
		if got := shown(c.page).MatchString(c.printed); got != c.want {
			t.Errorf("%q shows %q: %v", c.page, c.printed, got)
		}
	}
}
