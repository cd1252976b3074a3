package lint

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var (
	versionUnknown = codes.Declare(finding.Code{Name: "version-unknown", Severity: finding.Error, Fixable: true,
		Meaning: "There is no such version of CNI: plugins refuse it.",
		Remedy:  "a version of CNI, such as 1.0.0"})
	versionMissing = codes.Declare(finding.Code{Name: "version-missing", Severity: finding.Info,
		Meaning: "Without `cniVersion` the version is 0.1.0, which has neither CHECK nor several addresses of one family.",
		Remedy:  "`cniVersion`"})
)

// checkVersion looks at cniVersion, and whether the plugins take it.
func (f *file) checkVersion() {
	n := f.network
	v := f.top.get("cniVersion")
	if v == nil || v.text == "" {
		if f.top.get("cniVersions") == nil {
			f.report(versionMissing, span{f.top.at, f.top.at + 1, "cniVersion"}, `"cniVersion": "1.0.0"`, nil, "the network has no cniVersion: it counts as 0.1.0")
		}
	} else if v.kind == '"' && !plugin.KnownVersion(v.text) {
		all := plugin.Versions("")
		fix, edits := "one of "+strings.Join(all, ", "), []edit(nil)
		if i := slices.IndexFunc(all, func(known string) bool { return known == v.text+".0" || known == strings.TrimPrefix(v.text, "v") }); i >= 0 {
			fix, edits = `"`+all[i]+`"`, []edit{{v.at, v.end, `"` + all[i] + `"`}}
		}
		f.report(versionUnknown, v.span, fix, edits, "there is no CNI version %q", shorten(v.text))
	}
	if !plugin.KnownVersion(n.version) {
		return
	}
	for _, p := range n.all() {
		if p.plugin != nil && p.plugin.Oldest != "" && !plugin.AtLeast(n.version, p.plugin.Oldest) {
			f.report(versionTooOld, n.at, `"1.0.0"`, nil, "%s needs a cniVersion of %s or newer, and the network has %s", p.kind, p.plugin.Oldest, n.version)
		}
	}
}
