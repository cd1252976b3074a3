package plugin

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
)

// Configure reads a configuration, which is strict, into the request, whose Command says how strict to be, for a plugin that takes
// CNI versions from oldest on. Nothing is changed by it. When it fails, Version says which one the configuration names, as far as
// that was read.
func (r *Request) Configure(config *conf.Object, oldest string) error {
	r.Config = config
	if err := r.readNetwork(); err != nil {
		return err
	}
	if err := CheckVersion(r.Version, r.Command, oldest); err != nil {
		return err
	}
	if err := r.readValid(); err != nil {
		return err
	}
	if r.Command == Del || r.Command == GC {
		r.Config = r.Config.Lenient()
	}
	if err := r.readPrevResult(); err != nil {
		return err
	}
	return r.Config.Err()
}

// readNetwork reads the keys that every verb needs.
func (r *Request) readNetwork() error {
	r.Version = versions[0]
	r.Config.String("cniVersion", &r.Version)
	if r.Version == "" {
		r.Version = versions[0]
	}
	r.Config.String("name", &r.Network)
	if err := r.Config.Err(); err != nil {
		return types.NewError(types.ErrDecodingFailure, "the configuration can't be used: "+err.Error(), "correct the type of that value")
	}
	if r.Network == "" {
		return ConfigError("give the network a name in its configuration", "missing network name")
	}
	if why := InvalidName(r.Network); why != "" {
		return ConfigError("rename the network", "the network's name is %q: %s", r.Network, why)
	}
	return nil
}

// readPrevResult reads prevResult, which only has to be readable where the plugin depends on it.
func (r *Request) readPrevResult() error {
	r.PrevResult = nil
	if !r.Config.Has("prevResult") {
		return nil
	}
	o := r.Config.Object("prevResult")
	if err := r.Config.Err(); err != nil {
		return ConfigError("prevResult must be the result of the plugin before", "%v", err)
	}
	result, err := ParseResult(o, r.Version)
	if err != nil && (r.Command == Add || r.Command == Check) {
		return err
	}
	r.PrevResult = result
	return nil
}

// readValid reads GC's list, under the name of the spec or the one that older versions of libcni send. It is strict, unlike
// everything else that GC reads: an entry not understood would be an attachment taken for stale.
func (r *Request) readValid() error {
	if r.Command != GC {
		return nil
	}
	r.Valid = nil
	key := ValidKey
	if !r.Config.Has(key) {
		key = OldValidKey
	}
	r.HasValid = r.Config.Has(key)
	r.Config.Objects(key, func(e *conf.Object) {
		var a Attachment
		e.String("containerID", &a.ContainerID)
		e.String("ifname", &a.IfName)
		if a.ContainerID == "" {
			e.Fail("containerID", "the attachment's container id", "none")
		}
		if a.IfName == "" {
			e.Fail("ifname", "the attachment's interface name", "none")
		}
		r.Valid = append(r.Valid, a)
	})
	if err := r.Config.Err(); err != nil {
		return ConfigError("nothing was removed; the runtime must send a list of containerID and ifname", "%v", err)
	}
	return nil
}

// The keys of GC's list: the one of spec 1.1.0, and the one that libcni had before it was corrected and still sends.
const (
	ValidKey    = "cni.dev/valid-attachments"
	OldValidKey = "cni.dev/attachments"
)

// InvalidName says what is wrong with a container id or network name, which end up in file names, rules and links:
// ^[a-zA-Z0-9][a-zA-Z0-9_.-]*$ (libcni). It returns "" for nothing.
func InvalidName(s string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for i, c := range s {
		if !strings.ContainsRune(letters, c) && (i == 0 || !strings.ContainsRune("_.-", c)) {
			return "it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'"
		}
	}
	return ""
}
