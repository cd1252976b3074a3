package lint

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

var referenceNewer = codes.Declare(finding.Code{Name: "reference-newer", Severity: finding.Info,
	Meaning: "A newer version of the reference plugins than the one you asked about (--reference) reads this key."})

// checkOrigin says which keys the reference plugins, or a version of them, do not have.
func (f *file) checkOrigin(v *value, table keys.Table, who string) {
	for i := range v.members {
		m := &v.members[i]
		k := fold(table, m.name)
		if k == nil || m.value.kind == 'n' {
			continue
		}
		switch {
		case k.Since == keys.Ours:
			f.report(onlyCnibox, m.key, "", nil, "the reference plugins do not read %q of %s", k.Name, who)
		case f.options.Reference != "" && k.Since != "" && newer(k.Since, f.options.Reference):
			f.report(referenceNewer, m.key, "", nil, "the reference plugins read %q of %s since version %s, not in %s", k.Name, who, k.Since, f.options.Reference)
		}
		for _, o := range objectsIn(m.value) {
			f.checkOrigin(o, k.Keys, who)
		}
	}
}

// newer reports whether a version of the reference plugins is newer than another. "after 1.9.1" is newer than 1.9.1.
func newer(since, than string) bool {
	plain, after := strings.CutPrefix(since, "after ")
	a, b := numbers(plain), numbers(than)
	c := slices.Compare(a, b)
	return c > 0 || c == 0 && after
}

func numbers(version string) (list []int) {
	for part := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		n, _ := strconv.Atoi(part)
		list = append(list, n)
	}
	return list
}
