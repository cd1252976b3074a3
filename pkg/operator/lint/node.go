package lint

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/result"
)

// Node is what is compared of this node.
type Node struct {
	BinDirs  []string                     // of plugins
	Plugins  func(name string) *Installed // nil if there is no such plugin
	Links    map[string]int               // MTUs by name
	Routes   []Route
	Networks []Input // the files of the node's directory of networks
}

// Installed is a plugin in one of the directories.
type Installed struct {
	Path      string
	Version   string // of the reference plugins that it is like, "" if its file does not say
	Ours      bool
	Reference bool
}

// Route is a route of the host that leads to some addresses only.
type Route struct {
	To   netip.Prefix
	Link string
}

// ReadNode looks at this node.
func ReadNode(binDirs []string, confDir string) (*Node, error) {
	n := &Node{BinDirs: binDirs, Links: map[string]int{}}
	known := map[string]*Installed{}
	n.Plugins = func(name string) *Installed {
		if _, asked := known[name]; !asked {
			known[name] = lookUp(binDirs, name)
		}
		return known[name]
	}
	links, err := link.List(&netlink.Handle{})
	if err != nil {
		return nil, fmt.Errorf("list the links of the host: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		n.Links[l.Attrs().Name], names[l.Attrs().Index] = l.Attrs().MTU, l.Attrs().Name
	}
	routes, err := link.Routes(&netlink.Handle{}, netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the routes of the host: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == 0 {
			continue
		}
		if to := result.Prefix(*r.Dst); to.Bits() > 0 && !to.Addr().IsLinkLocalUnicast() && !to.Addr().IsMulticast() {
			n.Routes = append(n.Routes, Route{to, names[r.LinkIndex]})
		}
	}
	if n.Networks, err = Read(confDir); os.IsNotExist(err) {
		err = nil
	}
	return n, err
}

// lookUp finds a plugin as runtimes do. Nothing is run to learn its version.
func lookUp(dirs []string, name string) *Installed {
	files := pluginfile.Find(dirs, name)
	if files == nil {
		return nil
	}
	like, _, _ := strings.Cut(strings.TrimPrefix(files[0].Version(), "v"), "+")
	return &Installed{Path: files[0].Path, Version: like, Ours: files[0].Origin == pluginfile.Ours, Reference: files[0].Origin == pluginfile.Reference}
}

// checkNode compares a file with the node.
func (f *file) checkNode() {
	if f.network == nil {
		return
	}
	for _, p := range f.network.all() {
		f.checkInstalled(p)
		if p.ipam != nil {
			f.checkInstalled(p.ipam)
		}
		f.checkMaster(p)
	}
	f.checkRoutes()
}

func (f *file) checkInstalled(p *part) {
	if p.named == "" || p.filledIn {
		return
	}
	i := f.options.Node.Plugins(p.named)
	if i == nil {
		f.report("plugin-not-installed", p.typed, "", nil, "%q is in none of the directories of plugins", cut(p.named))
		return
	}
	set, known := p.table()
	if !known || i.Version == "" && !i.Reference {
		return
	}
	f.checkAge(p.value, set.Own, p.kind, i)
}

// checkAge looks for keys that an installed plugin does not have yet, or never will.
func (f *file) checkAge(v *value, table keys.Table, who string, i *Installed) {
	for at := range v.members {
		m := &v.members[at]
		k := fold(table, m.name)
		if k == nil || m.value.kind == 'n' {
			continue
		}
		switch {
		case k.Since == keys.Ours && !i.Ours:
			f.report("plugin-older", m.key, "", nil, "%s is the reference plugin, and does not read %q", i.Path, k.Name)
		case k.Since != keys.Ours && k.Since != "" && i.Version != "" && !i.Ours && newer(k.Since, i.Version):
			f.report("plugin-older", m.key, "", nil, "%s has version %s, and %q came with %s", i.Path, i.Version, k.Name, k.Since)
		}
		for _, o := range objectsIn(m.value) {
			f.checkAge(o, k.Keys, who, i)
		}
	}
}

// checkMaster looks at the links that a plugin works on.
func (f *file) checkMaster(p *part) {
	name := "master"
	switch {
	case p.reads("device"):
		name = "device"
	case !p.reads(name):
		return
	}
	device := p.str(name)
	if device == "" || p.on("linkInContainer") {
		return
	}
	most, there := f.options.Node.Links[device]
	if !there {
		f.report("master-missing", p.get(name).span, "", nil, "this node has no link %q", device)
	} else if mtu, set := p.num("mtu"); set && mtu > most && p.facts.MTUWithinMaster {
		f.report("mtu-above-master", p.get("mtu").span, "", nil, "%s has an MTU of %d, and %d is more", device, most, mtu)
	}
}

// checkRoutes looks for routes that lead a network's addresses elsewhere.
func (f *file) checkRoutes() {
	for _, r := range f.network.routed() {
		own := func(route Route) bool {
			return r.bridge != "" && strings.HasPrefix(route.Link, r.bridge) || r.bridge == "" && strings.HasPrefix(route.Link, "veth")
		}
		at := slices.IndexFunc(f.options.Node.Routes, func(route Route) bool { return route.To.Overlaps(r.subnet) && !own(route) })
		if at >= 0 {
			route := f.options.Node.Routes[at]
			f.report("route-overlap", r.get("subnet").span, "another subnet", nil, "%s has addresses of %s, which this node has a route to, by %s", r.subnet, route.To, route.Link)
		}
	}
}

// others reads the networks of the node that are not looked at themselves.
func (n *Node) others(inputs []Input, o Options) (files []*file) {
	for _, in := range n.Networks {
		same := func(other Input) bool {
			a, err := os.Stat(in.Name)
			b, err2 := os.Stat(other.Name)
			return in.Name == other.Name || err == nil && err2 == nil && os.SameFile(a, b)
		}
		if slices.ContainsFunc(inputs, same) {
			continue
		}
		f := read(in, o)
		if f.top != nil && isRead(in.Name) {
			f.readNetwork(f.isSingle())
		}
		files = append(files, f)
	}
	return files
}
