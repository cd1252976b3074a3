package pagetest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

var codeName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Codes makes sure that codes are whole, and that a section of a page has them as a table.
func Codes(t *testing.T, codes finding.Codes, page, section string) {
	t.Helper()
	for _, c := range codes {
		if !codeName.MatchString(c.Name) || c.Meaning == "" || codes.Find(c.Name) != c || c.Severity.Rank() < 0 {
			t.Errorf("%q is no code, is there twice, or has no meaning or severity", c.Name)
		}
		if (c.Severity != finding.Info || c.Fixable) && c.Remedy == "" {
			t.Errorf("%s has no remedy", c.Name)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## "+section+"\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var got []string
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	if want := codes.Rows(); !slices.Equal(got, want) {
		t.Errorf("the table of %s should be\n%s\nand is\n%s", page, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}
