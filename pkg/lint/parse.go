package lint

import (
	"cmp"
	"errors"
	"regexp"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkParse has the plugin itself read its configuration, and its IPAM plugin, where nothing else was found.
func (f *file) checkParse(p *part) {
	if p.filledIn || !plugin.KnownVersion(f.network.version) || f.hasErrorIn(p.span) {
		return
	}
	f.parse(p, p.plugin)
	if p.ipam != nil && p.ipam.plugin != nil && !p.ipam.filledIn && p.ipam.plugin.Kind == plugin.IPAM {
		if set, known := p.table(); !known || !f.hasErrorIn(p.span) && set.Own.Find("ipam") != nil {
			f.parse(p, p.ipam.plugin)
		}
	}
}

// namedKey takes the key out of an error's text.
var namedKey = regexp.MustCompile(`key "([^"]+)"`)

// parse has one plugin read the configuration of a part.
func (f *file) parse(p *part, with *plugin.Descriptor) {
	if with == nil {
		return
	}
	reader, is := with.Plugin.(plugin.Configured)
	o, err := conf.Parse(f.Text[p.at:p.end])
	if !is || err != nil {
		return
	}
	name := cmp.Or(f.network.name, "network")
	o.Set("name", name)
	o.Set("cniVersion", f.network.version)
	r := &plugin.Request{Command: plugin.Status, Key: plugin.Key{Network: name}, Version: f.network.version, Config: o, Plugins: f.options.Plugins}
	if err = reader.Parse(r); err == nil {
		return
	}
	at := p.typed
	var wrong *conf.Error
	if errors.As(err, &wrong) {
		at = p.find(wrong.Path).span
	} else if m := namedKey.FindStringSubmatch(err.Error()); m != nil {
		at = p.find(m[1]).span
	}
	if at.at == p.at { // of the object itself its type says more
		at = p.typed
	}
	e := plugin.AsError(err)
	code := "refused"
	if wrong != nil && formOf(with, wrong.Path) != keys.Any {
		code = "wrong-form"
	}
	if strings.Contains(e.Msg, "no address to hand out") {
		code = "no-room"
	}
	f.report(code, at, "", nil, "%s refuses it: %s (%s)", with.Name, e.Msg, e.Details)
}

// formOf returns the form of the key at a path of a plugin's configuration.
func formOf(with *plugin.Descriptor, path string) keys.Form {
	table := with.Plugin.(plugin.Configured).Keys().Own
	path = strings.ReplaceAll(strings.ReplaceAll(path, "]", ""), "[", ".")
	steps := strings.Split(path, ".")
	form := keys.Any
	for _, step := range steps {
		if k := fold(table, step); k != nil {
			form, table = k.Form, k.Keys
		}
	}
	return form
}
