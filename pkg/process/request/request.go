// Package request makes a request of a plugin from a configuration, and serves it.
package request

import (
	"context"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Compose returns what a runtime sends to a plugin of a list: the plugin's own configuration with the list's name and version, of what is
// wanted of a container that which the plugin has the capability for, and the result of the plugins before, if there is one, in the form of
// the version.
func Compose(own, list, wanted *conf.Object, prev *types100.Result, version string) *conf.Object {
	config := own.Copy()
	config.SetFrom(list, "name", "cniVersion")
	if asked := wanted.Only(own.Object("capabilities").TrueKeys()...); len(asked.Keys()) > 0 {
		config.Set("runtimeConfig", asked)
	}
	if prev != nil {
		config.Set("prevResult", result.FormOf(prev, version))
	}
	return config
}

// Configure is Read, and makes sure of what the plugin depends on.
func Configure(r *plugin.Request, config *conf.Object, of plugin.Descriptor) error {
	if err := Read(r, config, of); err != nil {
		return err
	}
	return NeedPrevResult(r, of)
}

// Read reads a configuration, which is strict, into a request for a plugin. The request's Command says how strict to be. Nothing is
// changed by it. When it fails, Version says which one the configuration names, as far as that was read.
func Read(r *plugin.Request, config *conf.Object, of plugin.Descriptor) error {
	r.Config = config
	if err := readNetwork(r); err != nil {
		return err
	}
	if err := plugin.CheckVersion(r.Version, r.Command, of.Oldest); err != nil {
		return err
	}
	if err := readValid(r); err != nil {
		return err
	}
	if r.Command == plugin.Del || r.Command == plugin.GC {
		r.Config = r.Config.Lenient()
	}
	if err := readPrevResult(r); err != nil {
		return err
	}
	return r.Config.Err()
}

// readNetwork reads the keys that every verb needs.
func readNetwork(r *plugin.Request) error {
	r.Version = plugin.Versions("")[0]
	r.Config.String("cniVersion", &r.Version)
	if r.Version == "" {
		r.Version = plugin.Versions("")[0]
	}
	r.Config.String("name", &r.Network)
	if err := r.Config.Err(); err != nil {
		return types.NewError(types.ErrDecodingFailure, "the configuration can't be used: "+err.Error(), "correct the type of that value")
	}
	if r.Network == "" {
		return plugin.ConfigError("give the network a name in its configuration", "missing network name")
	}
	if err := plugin.ValidateName(r.Network); err != nil {
		return plugin.ConfigError("rename the network", "the network's name is %q: %w", r.Network, err)
	}
	return nil
}

// readPrevResult reads prevResult, which only has to be readable where the plugin depends on it.
func readPrevResult(r *plugin.Request) error {
	r.PrevResult = nil
	if !r.Config.Has("prevResult") {
		return nil
	}
	o := r.Config.Object("prevResult")
	if err := r.Config.Err(); err != nil {
		return plugin.ConfigError("prevResult must be the result of the plugin before", "%v", err)
	}
	prev, err := result.Parse(o, r.Version)
	if err != nil && (r.Command == plugin.Add || r.Command == plugin.Check) {
		return err
	}
	r.PrevResult = prev
	return nil
}

// NeedPrevResult is an error, in words of the reference plugins, if a plugin needs prevResult and there is none.
func NeedPrevResult(r *plugin.Request, of plugin.Descriptor) error {
	switch {
	case r.PrevResult != nil:
		return nil
	case of.Chained && (r.Command == plugin.Add || r.Command == plugin.Check):
		return plugin.ConfigError("list it behind a plugin that makes an interface", "%s must be called as chained plugin: required prevResult missing", of.Name)
	case r.Command == plugin.Check && !of.ChecksWithoutResult:
		return plugin.ConfigError("the runtime must pass the result of ADD to CHECK", "required prevResult missing")
	}
	return nil
}

// readValid reads GC's list, under the name of the spec or the one that older versions of libcni send. It is strict, unlike
// everything else that GC reads: an entry not understood would be an attachment taken for stale.
func readValid(r *plugin.Request) error {
	if r.Command != plugin.GC {
		return nil
	}
	r.Valid = nil
	key := ValidKey
	if !r.Config.Has(key) {
		key = OldValidKey
	}
	r.HasValid = r.Config.Has(key)
	r.Config.Objects(key, func(e *conf.Object) {
		a := plugin.KeyIn(e)
		a.Network = r.Network
		if a.ContainerID == "" {
			e.Fail("containerID", "the attachment's container id", "none")
		}
		if a.IfName == "" {
			e.Fail("ifname", "the attachment's interface name", "none")
		}
		r.Valid = append(r.Valid, a)
	})
	if err := r.Config.Err(); err != nil {
		return plugin.ConfigError("nothing was removed; the runtime must send a list of containerID and ifname", "%v", err)
	}
	return nil
}

// The keys of GC's list: the one of spec 1.1.0, and the one that libcni had before it was corrected and still sends.
const (
	ValidKey    = "cni.dev/valid-attachments"
	OldValidKey = "cni.dev/attachments"
)

// Serve calls the request's verb of a plugin. ADD always has a result, and GC without a list of what is valid removes nothing.
func Serve(ctx context.Context, p plugin.Plugin, r *plugin.Request) (made *types100.Result, err error) {
	switch r.Command {
	case plugin.Add:
		made, err = p.Add(ctx, r)
		if err == nil && made == nil {
			made = &types100.Result{}
		}
	case plugin.Del:
		err = p.Del(ctx, r)
	case plugin.Check:
		err = Check(ctx, p, r)
	case plugin.Status:
		err = p.Status(ctx, r)
	case plugin.GC:
		err = collect(ctx, p, r)
	}
	return made, err
}

func collect(ctx context.Context, p plugin.Plugin, r *plugin.Request) error {
	if !r.HasValid {
		return nil
	}
	switch p := p.(type) {
	case plugin.Collector:
		return p.GC(ctx, r)
	case plugin.Holder:
		return held.GC(ctx, r, p.Stores(r)...)
	}
	return nil
}
