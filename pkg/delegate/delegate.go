// Package delegate calls one plugin from another: in this process when the file that CNI_PATH leads to is this very binary, by exec
// otherwise (spec 1.1.0, section "Plugin Delegation").
package delegate

import (
	"context"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

const (
	dhcp      = "dhcp"       // sends its requests, and its releases, through the attachment's interface
	hostLocal = "host-local" // hands out addresses that are this node's alone
)

// Delegate is a plugin found in CNI_PATH. When its ADD fails it has undone what it did.
type Delegate struct {
	plugin.Plugin
	Name     string      // as in the plugin.Descriptor that its name stands for, whatever people call it; "" if there is none
	Kind     plugin.Kind // likewise
	Oldest   string      // likewise
	External bool        // it is another program
}

// Find looks for the plugin called name in the request's CNI_PATH.
func Find(r *plugin.Request, name string) (*Delegate, error) {
	if name == "" || strings.ContainsRune(name, filepath.Separator) {
		return nil, plugin.ConfigError("name a plugin in CNI_PATH, such as host-local", "%q is no plugin's name", name)
	}
	for _, dir := range r.Path {
		path := filepath.Join(dir, name)
		var file unix.Stat_t
		if unix.Stat(path, &file) != nil || file.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		d := &Delegate{Plugin: external{name, path}, External: true}
		if row := r.Plugins.Find(name); row != nil {
			d.Name, d.Kind, d.Oldest = row.Name, row.Kind, row.Oldest
			if isSelf(&file) {
				d.Plugin, d.External = row.Plugin, false
			}
		}
		return d, nil
	}
	return nil, plugin.ConfigError("install it there, or correct the type in the configuration",
		"plugin %s is not in CNI_PATH (%s)", name, strings.Join(r.Path, ":"))
}

// FindIPAM looks for an IPAM plugin. Plugins of other kinds call one themselves, and would do so for ever.
func FindIPAM(r *plugin.Request, name string) (*Delegate, error) {
	if row := r.Plugins.Find(name); row != nil && row.Kind != plugin.IPAM {
		return nil, plugin.ConfigError("name one that hands out addresses, such as host-local", "ipam: %s is no IPAM plugin", name)
	}
	return Find(r, name)
}

// HostLocal returns host-local of this binary, whatever CNI_PATH has; nil if the caller has none.
func HostLocal(r *plugin.Request) *Delegate {
	row := r.Plugins.Find(hostLocal)
	if row == nil {
		return nil
	}
	return &Delegate{Plugin: row.Plugin, Name: row.Name, Kind: row.Kind, Oldest: row.Oldest}
}

// isSelf reports whether a file is this process's binary, also when another one has taken its name since.
func isSelf(file *unix.Stat_t) bool {
	var own unix.Stat_t
	return unix.Stat("/proc/self/exe", &own) == nil && own.Dev == file.Dev && own.Ino == file.Ino
}

// NeedsLink reports whether the plugin, an IPAM, may work through the attachment's interface. Of one that is not ours it has to be
// assumed.
func (d *Delegate) NeedsLink() bool { return d.External || d.Name == dhcp }

// ReleasesThroughLink reports whether the plugin, an IPAM, can give back an address only while the interface exists.
func (d *Delegate) ReleasesThroughLink() bool { return d.Name == dhcp }

// HandsOutOnce reports whether nobody else can have an address that the plugin, an IPAM, hands out.
func (d *Delegate) HandsOutOnce() bool { return d.Name == hostLocal }

// Del calls the plugin's DEL, also in place of the caller's request for another verb: an ADD that fails gives back what it has.
func (d *Delegate) Del(ctx context.Context, r *plugin.Request) error {
	return d.Plugin.Del(ctx, r.For(plugin.Del))
}

// RefuseSecond refuses an ADD of an attachment that is there. A delegate that is another program would fail, and its DEL, which then
// follows, take the attachment away.
func RefuseSecond(r *plugin.Request) error {
	inside, err := r.LinksInside()
	if err == nil {
		_, err = inside.LinkByName(r.IfName)
	}
	switch {
	case link.IsNotFound(err):
		return nil
	case err == nil:
		err = plugin.Errorf("call DEL before another ADD, or choose another interface name", "interface %s is in %s already", r.IfName, r.Netns)
	}
	return err
}
