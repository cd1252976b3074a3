package lint

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/result"
)

// Node is what is compared of this node.
type Node struct {
	BinDirs  []string                     // of plugins
	Plugins  func(name string) *Installed // nil if there is no such plugin
	Links    map[string]int               // MTUs by name
	IPv6Off  func(link string) string     // why a link that is there, or is made, has no IPv6; nil if all have
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
	host := &node.Host{}
	n.IPv6Off = host.IPv6Off
	routes, err := host.Routes()
	if err = errors.Join(host.ReadLinks(), err); err != nil {
		return nil, err
	}
	for _, l := range host.Links() {
		n.Links[l.Name] = l.MTU
	}
	for _, r := range routes {
		by := host.LinkNumbered(r.LinkIndex)
		if r.Table != unix.RT_TABLE_MAIN || node.IsDefault(r) || by == nil {
			continue
		}
		if to := result.Prefix(*r.Dst); !to.Addr().IsLinkLocalUnicast() && !to.Addr().IsMulticast() {
			n.Routes = append(n.Routes, Route{to, by.Name})
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
	if f.definition != nil && f.isElsewhere() && netconf.Find(netconf.MultusDir, f.definition.Name) == "" {
		f.report(pluginsMissing, span{}, "", nil, "no file in %s has a network %q", netconf.MultusDir, f.definition.Name)
	}
	if f.network == nil {
		return
	}
	for _, p := range f.network.all() {
		f.checkInstalled(p)
		if p.ipam != nil {
			f.checkInstalled(p.ipam)
		}
		f.checkMaster(p)
		f.checkIPv6(p)
	}
	f.checkRoutes()
}

var pluginNotInstalled = codes.Declare(finding.Code{Name: "plugin-not-installed", Severity: finding.Error,
	Meaning: "No directory of plugins has this plugin: ADD fails (with --node).",
	Remedy:  "`cnictl install`, or another plugin"})

func (f *file) checkInstalled(p *part) {
	if p.named == "" || p.filledIn {
		return
	}
	i := f.options.Node.Plugins(p.named)
	if i == nil {
		f.report(pluginNotInstalled, p.typed, "", nil, "%q is in none of the directories of plugins", shorten(p.named))
		return
	}
	set, known := p.table()
	if !known || i.Version == "" && !i.Reference {
		return
	}
	f.checkAge(p.value, set.Own, p.kind, i)
}

var pluginOlder = codes.Declare(finding.Code{Name: "plugin-older", Severity: finding.Warning,
	Meaning: "The installed plugin is older than a key of the configuration, and ignores it (with --node).",
	Remedy:  "a newer plugin"})

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
			f.report(pluginOlder, m.key, "", nil, "%s is the reference plugin, and does not read %q", i.Path, k.Name)
		case k.Since != keys.Ours && k.Since != "" && i.Version != "" && !i.Ours && newer(k.Since, i.Version):
			f.report(pluginOlder, m.key, "", nil, "%s has version %s, and %q came with %s", i.Path, i.Version, k.Name, k.Since)
		}
		for _, o := range objectsIn(m.value) {
			f.checkAge(o, k.Keys, who, i)
		}
	}
}

var (
	masterMissing = codes.Declare(finding.Code{Name: "master-missing", Severity: finding.Error,
		Meaning: "The node has no such link: ADD fails (with --node).",
		Remedy:  "a link of this node"})
	mtuAboveMaster = codes.Declare(finding.Code{Name: "mtu-above-master", Severity: finding.Error,
		Meaning: "The kernel refuses a larger MTU than that of the link below (with --node).",
		Remedy:  "at most the MTU of that link"})
)

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
	if device == "" || p.isOn("linkInContainer") {
		return
	}
	most, there := f.options.Node.Links[device]
	if !there {
		f.report(masterMissing, p.get(name).span, "", nil, "this node has no link %q", device)
	} else if mtu, set := p.num("mtu"); set && mtu > most && p.facts.MTUWithinMaster {
		f.report(mtuAboveMaster, p.get("mtu").span, "", nil, "%s has an MTU of %d, and %d is more", device, most, mtu)
	}
}

var ipv6Off = codes.Declare(finding.Code{Name: "ipv6-off", Severity: finding.Error,
	Meaning: "The node has IPv6 switched off, and the plugin is to give its gateway an address of it: ADD fails (with --node).",
	Remedy:  "`sysctl -w net.ipv6.conf.default.disable_ipv6=0`, or no IPv6 in the network"})

// checkIPv6 looks whether the gateway of a network with IPv6 can have its address.
func (f *file) checkIPv6(p *part) {
	if f.options.Node.IPv6Off == nil || !p.facts.IsGateway {
		return
	}
	for _, r := range pools(p) {
		if why := f.options.Node.IPv6Off(p.facts.GatewayLink); r.subnet.Addr().Is6() && why != "" {
			f.report(ipv6Off, r.get("subnet").span, "no IPv6, or switch it on", nil, "%s needs IPv6, which %s switches off on this node", r.subnet, why)
		}
	}
}

var routeOverlap = codes.Declare(finding.Code{Name: "route-overlap", Severity: finding.Error,
	Meaning: "A route of this node leads to the subnet's addresses by another link (with --node).",
	Remedy:  "another subnet"})

// checkRoutes looks for routes that lead a network's addresses elsewhere.
func (f *file) checkRoutes() {
	for _, r := range f.network.routed() {
		own := func(route Route) bool {
			return r.bridge != "" && strings.HasPrefix(route.Link, r.bridge) || r.bridge == "" && strings.HasPrefix(route.Link, "veth")
		}
		at := slices.IndexFunc(f.options.Node.Routes, func(route Route) bool { return route.To.Overlaps(r.subnet) && !own(route) })
		if at >= 0 {
			route := f.options.Node.Routes[at]
			f.report(routeOverlap, r.get("subnet").span, "another subnet", nil, "%s has addresses of %s, which this node has a route to, by %s", r.subnet, route.To, route.Link)
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
		for _, f := range read(in, o) {
			if f.top != nil && isRead(in.Name) {
				f.readNetwork()
			}
			files = append(files, f)
		}
	}
	return files
}
