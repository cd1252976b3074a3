package lint

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkParse has the plugin itself read its configuration, and its IPAM plugin, where nothing else was found.
func (f *file) checkParse(p *part) {
	if p.filledIn || !plugin.KnownVersion(f.network.version) || f.hasErrorIn(p.span) {
		return
	}
	f.parse(p, p.plugin)
	set, known := p.table()
	if known && set.Own.Find("ipam") != nil && p.ipam != nil && p.ipam.plugin != nil && !p.ipam.filledIn && p.ipam.plugin.Kind == plugin.IPAM && !f.hasErrorIn(p.span) {
		f.parse(p, p.ipam.plugin)
	}
}

// blamed returns the value that an error's text names by its path, such as vlanTrunk[1].maxID, or by a key in quotes.
func blamed(p *part, text string) *value {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \"'(),;", r) })
	for _, word := range words {
		word = strings.TrimRight(word, ":.")
		if first, _, _ := strings.Cut(strings.ReplaceAll(word, "[", "."), "."); p.get(first) == nil {
			continue
		}
		v := p.find(word)
		for i := range v.members { // a sysctl has dots of its own
			if strings.Contains(text, strconv.Quote(v.members[i].name)) {
				return v.members[i].value
			}
		}
		return v
	}
	return p.value
}

var noRoom = codes.Declare(finding.Code{Name: "no-room", Severity: finding.Error,
	Meaning: "The range has no address to hand out.",
	Remedy:  "a larger subnet"})

// parse has one plugin read the configuration of a part.
func (f *file) parse(p *part, with *plugin.Descriptor) {
	if with == nil {
		return
	}
	reader, is := with.Plugin.(plugin.Configured)
	if !is {
		return
	}
	o := p.of.Config.Copy()
	name := cmp.Or(f.network.name, "network")
	o.Set("name", name)
	o.Set("cniVersion", f.network.version)
	r := &plugin.Request{Command: plugin.Status, Key: plugin.Key{Network: name}, Version: f.network.version, Config: o, Plugins: f.options.Plugins}
	err := reader.Parse(r)
	if err == nil {
		return
	}
	e := plugin.AsError(err)
	var at *value
	if wrong := (*conf.Error)(nil); errors.As(err, &wrong) {
		at = p.find(wrong.Path)
	} else {
		at = blamed(p, e.Msg)
	}
	where := at.span
	if at == p.value { // of the object itself its type says more
		where = p.typed
	}
	code := refused
	if strings.Contains(e.Msg, "no address to hand out") {
		code = noRoom
	}
	f.report(code, where, "", nil, "%s refuses it: %s (%s)", with.Name, e.Msg, e.Details)
}
