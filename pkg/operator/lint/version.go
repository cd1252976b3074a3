package lint

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkVersion looks at cniVersion, and whether the plugins take it.
func (f *file) checkVersion() {
	n := f.network
	v := f.top.get("cniVersion")
	if v == nil || v.text == "" {
		if f.top.get("cniVersions") == nil {
			f.report("version-missing", span{f.top.at, f.top.at + 1, "cniVersion"}, `"cniVersion": "1.0.0"`, nil, "the network has no cniVersion: it counts as 0.1.0")
		}
	} else if v.kind == '"' && !plugin.KnownVersion(v.text) {
		all := plugin.Versions("")
		fix, edits := "one of "+strings.Join(all, ", "), []edit(nil)
		if i := slices.IndexFunc(all, func(known string) bool { return known == v.text+".0" || known == strings.TrimPrefix(v.text, "v") }); i >= 0 {
			fix, edits = `"`+all[i]+`"`, []edit{{v.at, v.end, `"` + all[i] + `"`}}
		}
		f.report("version-unknown", v.span, fix, edits, "there is no CNI version %q", cut(v.text))
	}
	if !plugin.KnownVersion(n.version) {
		return
	}
	for _, p := range n.all() {
		if p.plugin != nil && p.plugin.Oldest != "" && !plugin.AtLeast(n.version, p.plugin.Oldest) {
			f.report("version-too-old", n.at, `"1.0.0"`, nil, "%s needs a cniVersion of %s or newer, and the network has %s", p.kind, p.plugin.Oldest, n.version)
		}
	}
}
