package lint

import (
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/lint"
)

// TestFixes mends each mistake that says it can be mended: it is gone then, and no other has come in its place. A key that was misspelled
// is the key that it was.
func TestFixes(t *testing.T) {
	t.Parallel()
	base := files(t, "base")
	codes := map[string]int{}
	for _, m := range mutations(t) {
		is := func(f lint.Finding) bool { return f.Code == m.code && f.Line == m.line && f.Fixable }
		if !slices.ContainsFunc(findingsIn(m.file, m.text), is) {
			continue
		}
		codes[m.code]++
		fixed, _ := lint.Fix(m.file, []byte(m.text), options)
		left := lint.Text(m.file, fixed, options)
		gone := []string{m.code, "wrong-form", "wrong-word"}
		if strings.HasSuffix(m.what, `= "x"`) { // ["x"] is a list, and no address
			gone = gone[:1]
		}
		if slices.ContainsFunc(left, func(f lint.Finding) bool { return f.Line == m.line && slices.Contains(gone, f.Code) }) {
			t.Errorf("%s: %s: after the fix:\n%s", m.file, m.what, list(left))
		}
		if m.code == "unknown-key" && string(fixed) != base[m.file] {
			t.Errorf("%s: %s: the fix makes another key of it:\n%s", m.file, m.what, fixed)
		}
	}
	t.Logf("mended: %v", codes)
}
