package doctor

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCodes compares the codes of the checks with their table, and that with the manual's.
func TestCodes(t *testing.T) {
	var ofChecks []string
	for _, c := range checks {
		ofChecks = append(ofChecks, c.codes...)
	}
	slices.Sort(ofChecks)
	ofChecks = slices.Compact(ofChecks)
	var names []string
	for i, c := range Codes {
		names = append(names, c.Name)
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(c.Name) || c.Meaning == "" {
			t.Errorf("%q is no code, or has no meaning", c.Name)
		}
		if c.Severity.rank() < 0 || i > 0 && c.Severity.rank() < Codes[i-1].Severity.rank() {
			t.Errorf("%s: %s is not where it belongs", c.Name, c.Severity)
		}
		if c.Severity != Info && c.Remedy == "" || c.Fixable && c.Remedy == "" {
			t.Errorf("%s has no remedy", c.Name)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, ofChecks) {
		t.Errorf("the table has\n%v\nand the checks find\n%v", names, ofChecks)
	}
}

func TestManual(t *testing.T) {
	guide, err := os.ReadFile("../../docs/operate/cnictl.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, c := range Codes {
		remedy := c.Remedy
		if c.Fixable {
			remedy += ", `--fix`"
		}
		row := "| `" + c.Name + "` | " + string(c.Severity) + " | " + c.Meaning + " | " + remedy + " |"
		want = append(want, strings.Join(strings.Fields(row), " "))
	}
	_, section, _ := strings.Cut(string(guide), "\n## doctor\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table of docs/operate/cnictl.md should be\n%s\nand is\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

func TestCommand(t *testing.T) {
	for want, words := range map[string][]string{
		"mv /etc/cni/net.d/10-a.conflist /x":     {"mv", "/etc/cni/net.d/10-a.conflist", "/x"},
		`rm '/var/lib/cni/results/a b'`:          {"rm", "/var/lib/cni/results/a b"},
		`rm 'it'\''s;reboot' '$(reboot)' '' '*'`: {"rm", "it's;reboot", "$(reboot)", "", "*"},
	} {
		if got := command(words...); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := comment("%s", "a\nreboot"); got != "# a reboot" {
		t.Errorf("a comment of two lines is %q", got)
	}
}
