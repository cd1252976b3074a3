package lint

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/schema"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// network is what a file has, as the checks need it.
type network struct {
	single  bool // it is one plugin, and no list
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
	of       *netconf.Part
	ipam     *part   // nil if there is none
	delegate *part   // of flannel
	chain    []*part // of chain
	filledIn bool    // others complete it: flannel does
}

// table returns the keys of the part, and whether they are known.
func (p *part) table() (keys.Set, bool) { return p.plugin.Keys() }

// reads reports whether the part's plugin reads a key.
func (p *part) reads(key string) bool { return p != nil && p.plugin.Reads(key) }

// all returns the plugins of the chain, those within a plugin "chain" too, and flannel's delegates.
func (n *network) all() (list []*part) {
	for _, p := range n.chain {
		list = append(list, p.all()...)
	}
	return list
}

// all returns the plugin, and those that it calls.
func (p *part) all() []*part {
	list := []*part{p}
	for _, called := range p.chain {
		list = append(list, called.all()...)
	}
	if p.delegate != nil {
		list = append(list, p.delegate)
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
	f.readNetwork()
	f.checkDuplicates(f.top)
	f.checkExtension()
	f.checkNetwork()
	for _, p := range f.network.all() {
		f.checkPart(p)
	}
	f.checkChain()
	for _, p := range f.network.all() {
		f.checkParse(p)
	}
}

func isListName(name string) bool { return filepath.Ext(name) == ".conflist" }

var (
	pluginsMissing = codes.Declare(finding.Code{Name: "plugins-missing", Severity: finding.Error,
		Meaning: "The network has no plugins.",
		Remedy:  "`plugins` with at least one"})
	wrongExtension = codes.Declare(finding.Code{Name: "wrong-extension", Severity: finding.Error,
		Meaning: "The file's name does not fit what is in it, so runtimes refuse it: lists of plugins are `.conflist`, single plugins `.conf` or `.json`.",
		Remedy:  "the other extension"})
)

// checkExtension compares what is in the file with its name. Standard input has none.
func (f *file) checkExtension() {
	plugins, kind := f.top.member("plugins"), f.top.member("type")
	ext := filepath.Ext(f.Name)
	if f.definition != nil {
		ext = ""
	}
	switch {
	case ext == ".conflist" && plugins == nil && kind != nil:
		f.report(wrongExtension, kind.key, `"plugins": [{…}], or the extension .conf`, nil, "a .conflist has a list of plugins, and this is a single plugin")
	case (ext == ".conf" || ext == ".json") && plugins != nil && kind == nil:
		f.report(wrongExtension, plugins.key, "the extension .conflist", nil, "a %s file has a single plugin, and this is a list of plugins", ext)
	case !f.network.single && plugins == nil && kind == nil && f.top.member("disableCheck") == nil:
		f.report(pluginsMissing, f.top.span, `"plugins": [{"type": "bridge", …}]`, nil, "there are no plugins")
	}
}

// readNetwork finds the plugins.
func (f *file) readNetwork() {
	n := &network{version: "0.1.0", at: f.top.span, named: f.top.span}
	f.network = n
	if m := f.top.member("name"); m != nil {
		n.named = m.value.span
	}
	if m := f.top.member("cniVersion"); m != nil {
		n.at = m.value.span
	}
	var dirs []string
	if f.options.Node != nil {
		dirs = f.options.Node.BinDirs
	}
	l, err := netconf.Parse(cmp.Or(f.Name, "-"), f.Text, pluginfile.Rows(f.options.Plugins, dirs))
	if err != nil { // plugins read no better
		f.report(notJSON, f.top.span, "", nil, "%v", err)
		return
	}
	n.name, n.version, n.single = l.Name, cmp.Or(l.CNIVersion, n.version), l.IsSingle
	if f.definition != nil {
		n.name = cmp.Or(n.name, f.definition.Name)
	}
	for _, p := range l.Plugins {
		n.chain = append(n.chain, f.newPart(p))
	}
}

// newPart finds where a plugin and what it calls stand.
func (f *file) newPart(of *netconf.Part) *part {
	p := &part{value: f.top.find(of.Path), plugin: of.Row, facts: of.Facts, named: of.Named, kind: of.Kind, of: of, filledIn: of.FilledIn}
	p.typed = span{p.at, p.at + 1, p.path}
	if of.IsIPAM {
		p.typed = p.span
	}
	if m := p.member("type"); m != nil {
		p.typed = m.value.span
	}
	for _, e := range of.Chain() {
		p.chain = append(p.chain, f.newPart(e))
	}
	isObject := func(key string) bool { return p.get(key) != nil && p.get(key).kind == '{' }
	if d := of.Delegate(); d != nil && isObject(of.Facts.DelegateKey) {
		p.delegate = f.newPart(d)
	}
	if i := of.IPAM(); i != nil && isObject("ipam") {
		p.ipam = f.newPart(i)
	}
	return p
}

// validName is what CNI allows for a network's name.
var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

var (
	nameInvalid = codes.Declare(finding.Code{Name: "name-invalid", Severity: finding.Error,
		Meaning: "The network's name has a character that CNI does not allow: ADD fails.",
		Remedy:  "letters, digits, `_`, `.` and `-`, the first a letter or digit"})
	nameMissing = codes.Declare(finding.Code{Name: "name-missing", Severity: finding.Error,
		Meaning: "A network has to have a name.",
		Remedy:  "`name`"})
)

// checkNetwork looks at the keys beside the plugins.
func (f *file) checkNetwork() {
	n := f.network
	if !n.single {
		f.checkKeys(f.top, schema.ListKeys(), "a list of plugins")
		f.checkSchema(f.top, listKeys)
		f.checkBools()
	}
	switch name := f.top.get("name"); {
	case name == nil || name.kind == '"' && name.text == "":
		if f.definition != nil {
			break // Multus gives it the definition's
		}
		f.report(nameMissing, n.named, `"name": "mynet"`, nil, "the network has no name")
	case name.kind == '"' && !validName.MatchString(name.text):
		f.report(nameInvalid, name.span, "", nil, "%q is no name of a network: it has to begin with a letter or a digit, with letters, digits, _, . and - behind", shorten(name.text))
	}
	if list := f.top.get("plugins"); list != nil && list.kind == '[' && len(list.items) == 0 && !n.single {
		f.report(pluginsMissing, list.span, `"plugins": [{"type": "bridge", …}]`, nil, "the list of plugins is empty")
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
