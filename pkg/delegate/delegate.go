// Package delegate calls one plugin from another: in this process when the
// file that CNI_PATH leads to is this very binary, by exec otherwise (spec
// 1.1.0, section "Plugin Delegation").
package delegate

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// self is the binary of this process.
const self = "/proc/self/exe"

// dhcp is the IPAM plugin that sends its requests, and its releases, through the
// attachment's interface.
const dhcp = "dhcp"

// Delegate is a plugin found in CNI_PATH.
type Delegate struct {
	plugin.Plugin
	name     string
	oldest   string
	external bool
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
		if row := r.Plugins.Find(name); row != nil && isSelf(&file) {
			return &Delegate{Plugin: row.Plugin, name: name, oldest: row.Oldest}, nil
		}
		return &Delegate{Plugin: external{path: path}, name: name, external: true}, nil
	}
	return nil, &types.Error{
		Code:    types.ErrInvalidNetworkConfig,
		Msg:     "plugin " + name + " is not in CNI_PATH (" + strings.Join(r.Path, ":") + ")",
		Details: "install it there, or correct the type in the configuration",
	}
}

// FindIPAM looks for an IPAM plugin. Plugins of other kinds call one themselves, and would do so for ever.
func FindIPAM(r *plugin.Request, name string) (*Delegate, error) {
	if row := r.Plugins.Find(name); row != nil && row.Kind != plugin.IPAM {
		return nil, plugin.ConfigError("name one that hands out addresses, such as host-local", "ipam: %s is no IPAM plugin", name)
	}
	return Find(r, name)
}

// own is the file of this process's binary, which stays the same also when
// another one takes its name. It is looked at once: the kernel makes the way to
// it anew for each process, in 12 us.
var own struct {
	once sync.Once
	file unix.Stat_t
	err  error
}

func isSelf(file *unix.Stat_t) bool {
	own.once.Do(func() { own.err = unix.Stat(self, &own.file) })
	return own.err == nil && own.file.Dev == file.Dev && own.file.Ino == file.Ino
}

// NeedsLink tells whether the plugin, an IPAM, may work through the
// attachment's interface. Of one that is not ours it has to be assumed.
func (d *Delegate) NeedsLink() bool { return d.external || d.name == dhcp }

// ReleasesThroughLink tells whether the plugin, an IPAM, can give back an
// address only while the interface exists.
func (d *Delegate) ReleasesThroughLink() bool { return d.name == dhcp }

// External tells whether the plugin is another program.
func (d *Delegate) External() bool { return d.external }

// Oldest is the oldest configuration version the plugin takes, as in its
// plugin.Descriptor; another program checks that itself.
func (d *Delegate) Oldest() string { return d.oldest }

// Add calls the plugin's ADD.
func (d *Delegate) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	return d.Plugin.Add(ctx, d.request(r, plugin.Add))
}

// Del calls the plugin's DEL.
func (d *Delegate) Del(ctx context.Context, r *plugin.Request) error {
	return d.Plugin.Del(ctx, d.request(r, plugin.Del))
}

// Check calls the plugin's CHECK.
func (d *Delegate) Check(ctx context.Context, r *plugin.Request) error {
	return d.Plugin.Check(ctx, d.request(r, plugin.Check))
}

// request is the delegate's view of the caller's request. The verb can differ:
// an ADD that fails calls its delegate's DEL.
func (d *Delegate) request(r *plugin.Request, c plugin.Command) *plugin.Request {
	config := r.Config
	if c == plugin.Del && r.Command != plugin.Del {
		config = config.Lenient()
	}
	own := r.For(c, config)
	own.Stdin = r.Stdin
	return own
}
