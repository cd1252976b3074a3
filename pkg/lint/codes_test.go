package lint

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCodes makes sure that the table is whole and sorted, and that each code that the checks use is in it.
func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	for i, c := range Codes {
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(c.Name) || c.Meaning == "" || seen[c.Name] {
			t.Errorf("%q is no code, is there twice, or has no meaning", c.Name)
		}
		seen[c.Name] = true
		if c.Severity.rank() < 0 || i > 0 && (c.Severity.rank() < Codes[i-1].Severity.rank() ||
			c.Severity == Codes[i-1].Severity && c.Name < Codes[i-1].Name) {
			t.Errorf("%s: %s is not where it belongs", c.Name, c.Severity)
		}
		if c.Severity != Info && c.Remedy == "" || c.Fixable && c.Remedy == "" {
			t.Errorf("%s has no remedy", c.Name)
		}
	}
}

// TestManual compares the codes with the table of the manual.
func TestManual(t *testing.T) {
	guide, err := os.ReadFile("../../docs/operate/lint.md")
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
	_, section, _ := strings.Cut(string(guide), "\n## Codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the table of docs/operate/lint.md should be\n%s", strings.Join(want, "\n"))
	}
}
