// Package netconf is what a network's configuration says: a list of plugins, and what they call. It reads what runtimes read, Kubernetes'
// NetworkAttachmentDefinitions, and knows a template from a network.
package netconf

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Rows finds our plugin that a configuration names, nil if it is somebody else's.
type Rows func(name string) *plugin.Descriptor

// List is a network's configuration.
type List struct {
	Name       string
	CNIVersion string // the highest that it names, as for libcni; "" if it names none
	File       string // "" if it is in none
	IsSingle   bool   // it is a plugin's configuration, and no list
	Plugins    []*Part
	Config     *conf.Object // of the list itself, lenient
}

// Part is one plugin's configuration: an entry of the list, or what such an entry calls.
type Part struct {
	Named    string             // its type, as the configuration has it
	Kind     string             // the plugin's own name if it is one of our plugins, else as it is named
	Row      *plugin.Descriptor // nil if it is not ours
	Facts    plugin.Facts       // what is true of it
	Config   *conf.Object       // lenient
	Path     string             // where it stands, such as plugins[0].ipam
	IsIPAM   bool               // it hands out the addresses of the plugin that calls it
	FilledIn bool               // who calls it completes the configuration: flannel does

	rows Rows
}

// Parse reads a configuration. The file's name says whether it is a list or a single plugin where it may be both, as for libcni; without a name
// it is a list, as libcni keeps them with results.
func Parse(file string, text []byte, rows Rows) (*List, error) {
	o, err := conf.Parse(text)
	if err != nil {
		return nil, err
	}
	l := newList(o, file)
	switch isList := file == "" || filepath.Ext(file) == ".conflist"; {
	case l.Config.Has("plugins") && (isList || !l.Config.Has("type")):
		l.Plugins = partsIn(l.Config, "plugins", rows)
	case l.Config.Has("type"):
		l.IsSingle, l.Plugins = true, []*Part{NewPart(l.Config, rows)}
	}
	return l, nil
}

// Of returns what a list of libcni says, with the plugins that libcni has read from the network's folder.
func Of(list *libcni.NetworkConfigList, file string, rows Rows) *List {
	l := &List{Name: list.Name, CNIVersion: list.CNIVersion, File: file, Config: conf.New()}
	if o, err := conf.Parse(list.Bytes); err == nil {
		l.Config = o.Lenient()
	}
	for _, p := range list.Plugins {
		if o, err := conf.Parse(p.Bytes); err == nil { // libcni has parsed it
			l.Plugins = append(l.Plugins, NewPart(o.Lenient(), rows))
		}
	}
	return l
}

func newList(o *conf.Object, file string) *List {
	l := &List{File: file, Config: o.Lenient()}
	l.Config.String("name", &l.Name)
	l.Config.String("cniVersion", &l.CNIVersion)
	var versions []string
	l.Config.Strings("cniVersions", &versions)
	for _, v := range versions {
		if plugin.KnownVersion(v) && (!plugin.KnownVersion(l.CNIVersion) || plugin.AtLeast(v, l.CNIVersion)) {
			l.CNIVersion = v
		}
	}
	return l
}

// NewPart returns the plugin that an object is the configuration of.
func NewPart(o *conf.Object, rows Rows) *Part { return newPart(o, "", rows) }

// newPart is NewPart with a type for an object that has none.
func newPart(o *conf.Object, usual string, rows Rows) *Part {
	p := &Part{Config: o, Path: strings.TrimSuffix(o.Path(""), "."), rows: rows}
	o.String("type", &p.Named)
	p.Named = cmp.Or(p.Named, usual)
	p.Kind = p.Named
	if p.Row = rows(p.Named); p.Row != nil {
		p.Kind = p.Row.Name
	}
	p.Facts = p.Row.Facts(o)
	return p
}

func partsIn(o *conf.Object, key string, rows Rows) (list []*Part) {
	o.Objects(key, func(e *conf.Object) { list = append(list, NewPart(e, rows)) })
	return list
}

// Is reports whether the part is one of some plugins.
func (p *Part) Is(kinds ...string) bool { return slices.Contains(kinds, p.Kind) }

// Chain returns the entries of a plugin that calls a list of them.
func (p *Part) Chain() []*Part {
	if p.Facts.PluginsKey == "" {
		return nil
	}
	return partsIn(p.Config, p.Facts.PluginsKey, p.rows)
}

// Delegate returns the plugin that the part's calls with a configuration that it completes, as flannel does; nil if it calls none so.
func (p *Part) Delegate() *Part {
	if p.Facts.DelegateKey == "" {
		return nil
	}
	d := newPart(p.Config.Object(p.Facts.DelegateKey), p.Facts.DelegateType, p.rows)
	d.FilledIn = true
	if d.Row.Reads("isGateway") && !d.Config.Has("isGateway") {
		d.Config = d.Config.Copy().Lenient()
		d.Config.Set("isGateway", new(true))
		d.Facts = d.Row.Facts(d.Config)
	}
	return d
}

// IPAM returns what hands out the plugin's addresses, nil if nothing does.
func (p *Part) IPAM() *Part {
	usual := p.Facts.IPAMType
	if usual == "" && (p.IsIPAM || p.FilledIn || !p.Config.Has("ipam")) {
		return nil
	}
	i := newPart(p.Config.Object("ipam"), usual, p.rows)
	i.IsIPAM, i.FilledIn = true, usual != ""
	return i
}

// All returns the list's plugins, and what they call, each behind its caller.
func (l *List) All() (list []*Part) {
	for _, p := range l.Plugins {
		list = append(list, p.All()...)
	}
	return list
}

// All returns the plugin, and what it calls.
func (p *Part) All() []*Part {
	calls := p.Chain()
	for _, other := range []*Part{p.Delegate(), p.IPAM()} {
		if other != nil {
			calls = append(calls, other)
		}
	}
	list := []*Part{p}
	for _, called := range calls {
		list = append(list, called.All()...)
	}
	return list
}

// Inside returns the list's plugins, and every object inside of them: others' plugins have configurations of plugins in their own, under keys
// of their own.
func (l *List) Inside() (list []*Part) {
	for _, p := range l.Plugins {
		for _, o := range objectsIn(p.Config) {
			list = append(list, NewPart(o, p.rows))
		}
	}
	return list
}

// objectsIn returns an object and all that are in it.
func objectsIn(o *conf.Object) []*conf.Object {
	all := []*conf.Object{o}
	add := func(e *conf.Object) { all = append(all, objectsIn(e)...) }
	seen := map[string]bool{}
	for _, key := range o.Keys() {
		if seen[key] { // of two the last counts, and both times that one would be read
			continue
		}
		seen[key] = true
		if e := o.Object(key); e.Keys() != nil {
			add(e)
		}
		o.Objects(key, add)
		o.ObjectLists(key, func(list []*conf.Object) {
			for _, e := range list {
				add(e)
			}
		})
	}
	return all
}

// IsSet reports whether a switch of the list itself is on. It may be a string, for libcni.
func (l *List) IsSet(name string) (on bool) {
	word := ""
	l.Config.Bool(name, &on)
	l.Config.String(name, &word)
	return on || strings.EqualFold(word, "true")
}

// IsOn reports whether a key of a plugin, or of what is inside of it, is true.
func (l *List) IsOn(key string) bool {
	return slices.ContainsFunc(l.Inside(), func(p *Part) bool { return p.IsOn(key) })
}

// IsOn reports whether a key is true.
func (p *Part) IsOn(key string) (on bool) {
	p.Config.Bool(key, &on)
	return on
}

// Master returns the host's link that the plugin makes another one on, as far as it is named.
func (p *Part) Master() string {
	if p.IsOn("linkInContainer") {
		return ""
	}
	return p.string("master")
}

// Segment names the link of the host by which the plugin's interfaces are together with others: the bridge, or the master, and the VLAN on it. It
// is "" if that is no link of the host, or not known.
func (p *Part) Segment() string {
	name := p.Facts.Bridge
	if name == "" {
		if !p.Row.Reads("master") || p.IsOn("linkInContainer") {
			return ""
		}
		name = cmp.Or(p.Master(), "the uplink")
	}
	for _, key := range []string{"vlan", "vlanId"} {
		vlan := 0
		if p.Config.Int(key, &vlan); vlan != 0 && p.Row.Reads(key) {
			return fmt.Sprintf("VLAN %d of %s", vlan, name)
		}
	}
	return name
}

// Uses reports whether the plugin, or flannel's delegate, works on a link of the host.
func (p *Part) Uses(link string) bool {
	if d := p.Delegate(); d != nil && d.Uses(link) {
		return true
	}
	return slices.Contains([]string{p.Facts.Bridge, p.string("bridge"), p.Master(), p.string("device")}, link)
}

func (p *Part) string(key string) (text string) {
	p.Config.String(key, &text)
	return text
}
