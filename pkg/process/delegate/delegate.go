// Package delegate calls one plugin from another: in this process when the file that CNI_PATH leads to is this very binary (package layout), by exec
// otherwise (spec 1.1.0, section "Plugin Delegation").
package delegate

import (
	"context"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/layout"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// Delegate is a plugin found in CNI_PATH. When its ADD fails it has undone what it did.
type Delegate struct {
	plugin.Plugin
	plugin.Descriptor      // of the plugin that its name stands for, whatever people call it; of one that is not ours it says next to nothing
	External          bool // it is another program
}

// Find looks for the plugin called name in the request's CNI_PATH.
func Find(r *plugin.Request, name string) (*Delegate, error) {
	if name == "" || strings.ContainsRune(name, filepath.Separator) {
		return nil, plugin.ConfigError("name a plugin in CNI_PATH, such as host-local", "%q is no plugin's name", name)
	}
	row := r.Plugins.Find(name)
	if row != nil && r.InProcess {
		return &Delegate{Plugin: row.Plugin, Descriptor: *row}, nil
	}
	for _, dir := range r.Path {
		path := filepath.Join(dir, name)
		var file unix.Stat_t
		if unix.Stat(path, &file) != nil || file.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		d := &Delegate{External: true}
		if row != nil {
			d.Plugin, d.Descriptor, d.External = row.Plugin, *row, !layout.IsSelf(path, &file)
		}
		if d.External {
			d.Plugin = external{name, path}
			d.NeedsLink = true // it has to be assumed
			d.ChecksWithoutResult = true
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
	row := r.Plugins.Find("host-local")
	if row == nil {
		return nil
	}
	return &Delegate{Plugin: row.Plugin, Descriptor: *row}
}

// Del calls the plugin's DEL, also in place of the caller's request for another verb: an ADD that fails gives back what it has.
func (d *Delegate) Del(ctx context.Context, r *plugin.Request) error {
	return d.Plugin.Del(ctx, r.For(plugin.Del))
}

// GC has the plugin remove what attachments hold that are not valid.
func (d *Delegate) GC(ctx context.Context, r *plugin.Request) error {
	_, err := request.Serve(ctx, d.Plugin, r)
	return err
}
