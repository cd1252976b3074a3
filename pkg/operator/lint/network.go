package lint

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/schema"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// network is what a file has, as the checks need it.
type network struct {
	name    string
	named   span   // where the name stands
	version string // cniVersion, "0.1.0" if there is none
	at      span   // where the version stands
	chain   []*part
}

// part is one plugin's configuration: an entry of the list, an "ipam", or the delegate of flannel.
type part struct {
	*value
	plugin   *plugin.Descriptor // nil if it is not known
	facts    plugin.Facts       // what is true of it
	named    string             // its type
	kind     string             // the plugin's own name, else as it is named
	typed    span               // where the type stands
	ipam     *part              // nil if there is none
	delegate *part              // of flannel
	chain    []*part            // of chain
	filledIn bool               // others complete it: flannel does
}

// table returns the keys of the part, and whether they are known.
func (p *part) table() (keys.Set, bool) { return p.plugin.Keys() }

// reads reports whether the part's plugin reads a key.
func (p *part) reads(key string) bool { return p != nil && p.plugin.Reads(key) }

// all returns the plugins of the chain, those within a plugin "chain" too, and flannel's delegates.
func (n *network) all() (list []*part) {
	for _, p := range n.chain {
		list = append(list, p)
		list = append(list, p.chain...)
		if p.delegate != nil {
			list = append(list, p.delegate)
		}
	}
	return list
}

// listKeys are the keys of a list of plugins, and switches those of them that may be strings, too: "true" and "false".
var listKeys, switches = func() (others, bools keys.Table) {
	for _, k := range schema.ListKeys() {
		if k.Type == keys.Bool {
			bools = append(bools, k)
		} else if !isNote(k.Name) {
			others = append(others, typed(k))
		}
	}
	return others, bools
}()

// pluginKeys are the keys that every plugin may have.
var pluginKeys = func() (table keys.Table) {
	for _, k := range schema.Common() {
		table = append(table, typed(k))
	}
	return append(table, keys.Key{Name: "dns", Type: keys.Object, Keys: result.DNSKeys()}, keys.Key{Name: "ipam", Type: keys.Object})
}()

// typed returns a key that may have any value of its type, and be left out: names, versions and types have checks of their own.
func typed(k keys.Key) keys.Key {
	k.Words, k.Required = nil, false
	return k
}

// check looks at one file.
func (f *file) check() {
	if f.top == nil {
		return
	}
	single := f.isSingle()
	f.checkDuplicates(f.top)
	f.checkExtension(single)
	f.readNetwork(single)
	f.checkNetwork(single)
	for _, p := range f.network.all() {
		f.checkPart(p)
	}
	f.checkChain()
	for _, p := range f.network.all() {
		f.checkParse(p)
	}
}

// isSingle reports whether the file has one plugin, and no list of them. A plugin "chain" has a list, too.
func (f *file) isSingle() bool {
	return f.top.member("type") != nil && (!isListName(f.Name) || f.top.member("plugins") == nil)
}

func isListName(name string) bool { return filepath.Ext(name) == ".conflist" }

// checkExtension compares what is in the file with its name. Standard input has none.
func (f *file) checkExtension(single bool) {
	plugins, kind := f.top.member("plugins"), f.top.member("type")
	switch ext := filepath.Ext(f.Name); {
	case ext == ".conflist" && plugins == nil && kind != nil:
		f.report("wrong-extension", kind.key, `"plugins": [{…}], or the extension .conf`, nil, "a .conflist has a list of plugins, and this is a single plugin")
	case (ext == ".conf" || ext == ".json") && plugins != nil && kind == nil:
		f.report("wrong-extension", plugins.key, "the extension .conflist", nil, "a %s file has a single plugin, and this is a list of plugins", ext)
	case !single && plugins == nil && kind == nil && f.top.member("disableCheck") == nil:
		f.report("plugins-missing", f.top.span, `"plugins": [{"type": "bridge", …}]`, nil, "there are no plugins")
	}
}

// readNetwork finds the plugins.
func (f *file) readNetwork(single bool) {
	n := &network{version: "0.1.0", at: f.top.span, named: f.top.span}
	f.network = n
	if m := f.top.member("name"); m != nil {
		n.name, n.named = f.top.str("name"), m.value.span
	}
	if m := f.top.member("cniVersion"); m != nil {
		n.version, n.at = cmp.Or(f.top.str("cniVersion"), n.version), m.value.span
	}
	if list := f.top.get("cniVersions"); list != nil {
		for _, v := range list.items { // the highest counts
			if plugin.KnownVersion(v.text) && (!plugin.KnownVersion(n.version) || plugin.AtLeast(v.text, n.version)) {
				n.version = v.text
			}
		}
	}
	if list := f.top.get("plugins"); list != nil && !single {
		n.chain = f.readParts(list)
	} else if f.top.member("type") != nil {
		n.chain = []*part{f.readPart(f.top, "")}
	}
}

func (f *file) readParts(list *value) (chain []*part) {
	for _, e := range list.items {
		if e.kind == '{' {
			chain = append(chain, f.readPart(e, ""))
		}
	}
	return chain
}

// readPart reads a plugin's object. usual is its type if it has none.
func (f *file) readPart(v *value, usual string) *part {
	p := &part{value: v, named: cmp.Or(v.str("type"), usual), typed: span{v.at, v.at + 1, v.path}}
	if m := v.member("type"); m != nil {
		p.typed = m.value.span
	}
	f.find(p)
	if list := v.get(p.facts.PluginsKey); list != nil && p.facts.PluginsKey != "" {
		p.chain = f.readParts(list)
	}
	if d := v.get(p.facts.DelegateKey); d != nil && d.kind == '{' && p.facts.DelegateKey != "" {
		p.delegate = f.readPart(d, p.facts.DelegateType)
		p.delegate.filledIn = true
	}
	if i := v.get("ipam"); i != nil && i.kind == '{' && usual == "" {
		p.ipam = f.readIPAM(i, p.facts.IPAMType)
	}
	return p
}

// find finds our plugin that a part names, which may be somebody else's, and what is true of it.
func (f *file) find(p *part) {
	var dirs []string
	if f.options.Node != nil {
		dirs = f.options.Node.BinDirs
	}
	p.kind, p.plugin = p.named, pluginfile.Row(f.options.Plugins, p.named, dirs)
	if p.plugin != nil {
		p.kind = p.plugin.Name
	}
	config, _ := conf.Parse(f.Text[p.at:p.end]) // nil has no keys
	p.facts = p.plugin.Facts(config)
}

func (f *file) readIPAM(v *value, usual string) *part {
	p := &part{value: v, named: cmp.Or(v.str("type"), usual), typed: v.span, filledIn: usual != ""}
	if m := v.member("type"); m != nil {
		p.typed = m.value.span
	}
	f.find(p)
	return p
}

// validName is what CNI allows for a network's name.
var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// checkNetwork looks at the keys beside the plugins.
func (f *file) checkNetwork(single bool) {
	n := f.network
	if !single {
		f.checkKeys(f.top, schema.ListKeys(), "a list of plugins")
		f.checkSchema(f.top, listKeys)
		f.checkBools()
	}
	switch name := f.top.get("name"); {
	case name == nil || name.kind == '"' && name.text == "":
		f.report("name-missing", n.named, `"name": "mynet"`, nil, "the network has no name")
	case name.kind == '"' && !validName.MatchString(name.text):
		f.report("name-invalid", name.span, "", nil, "%q is no name of a network: it has to begin with a letter or a digit, with letters, digits, _, . and - behind", cut(name.text))
	}
	if list := f.top.get("plugins"); list != nil && list.kind == '[' && len(list.items) == 0 && !single {
		f.report("plugins-missing", list.span, `"plugins": [{"type": "bridge", …}]`, nil, "the list of plugins is empty")
	}
	f.checkVersion()
}

// checkBools looks at the switches that may be strings, too.
func (f *file) checkBools() {
	for _, k := range switches {
		v := f.top.get(k.Name)
		if v != nil && v.kind != 't' && v.kind != 'f' && !(v.kind == '"' && (strings.EqualFold(v.text, "true") || strings.EqualFold(v.text, "false"))) {
			f.reportValue(v, &k)
		}
	}
}
