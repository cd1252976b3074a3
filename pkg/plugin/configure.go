package plugin

import (
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
)

// Configure reads the text of a configuration into the request, whose Command
// says how strict to be, for a plugin that takes CNI versions from oldest on.
// Nothing is changed by it. When it fails, Version says which one the text
// names, as far as that was read.
func (r *Request) Configure(stdin []byte, oldest string) error {
	r.Stdin = stdin
	config, err := conf.Parse(stdin)
	if err != nil {
		return &types.Error{
			Code: types.ErrDecodingFailure, Msg: "the configuration on standard input is " + err.Error(),
			Details: "check the file in /etc/cni/net.d",
		}
	}
	return r.ConfigureBy(config, oldest)
}

// ConfigureBy is Configure with a configuration that is read already, and
// strict. A PrevResult that the request has is the one that it keeps.
func (r *Request) ConfigureBy(config *conf.Object, oldest string) error {
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

// Text returns the configuration's text: the one that was read or, in a request
// that a plugin of this process composed, the one a runtime would have sent.
func (r *Request) Text() []byte {
	if r.Stdin != nil {
		return r.Stdin
	}
	text := r.Config.JSON()
	if r.PrevResult == nil || r.Config.Has("prevResult") {
		return text
	}
	text = append(text[:len(text)-1], `,"prevResult":`...) // behind the name, which is there
	return append(append(text, PrintResult(r.PrevResult, r.Version)...), '}')
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
		return &types.Error{Code: types.ErrDecodingFailure, Msg: "the configuration can't be used: " + err.Error(), Details: "correct the type of that value"}
	}
	if r.Network == "" {
		return ConfigError("give the network a name in its configuration", "missing network name")
	}
	if why := InvalidName(r.Network); why != "" {
		return ConfigError("rename the network", "the network's name is %q: %s", r.Network, why)
	}
	return nil
}

// readPrevResult reads prevResult, which only has to be readable where the
// plugin depends on it.
func (r *Request) readPrevResult() error {
	if r.PrevResult != nil || !r.Config.Has("prevResult") {
		return nil
	}
	o := r.Config.Object("prevResult")
	if err := r.Config.Err(); err != nil {
		return ConfigError("prevResult must be the result of the plugin before", "%v", err)
	}
	result, err := ParseResult(o, r.Version)
	switch {
	case err == nil:
		r.PrevResult = result
	case r.Command == Add || r.Command == Check:
		return err
	}
	return nil
}

// readValid reads GC's list, under the name of the spec or the one that older
// versions of libcni send. It is strict, unlike everything else that GC reads:
// an entry not understood would be an attachment taken for stale.
func (r *Request) readValid() error {
	if r.Command != GC {
		return nil
	}
	r.Valid, r.HasValid = nil, false
	for _, key := range [...]string{ValidKey, OldValidKey} {
		if !r.Config.Has(key) {
			continue
		}
		r.HasValid = true
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
		break
	}
	if err := r.Config.Err(); err != nil {
		return ConfigError("nothing was removed; the runtime must send a list of containerID and ifname", "%v", err)
	}
	return nil
}

// The keys of GC's list: the one of spec 1.1.0, and the one that libcni had
// before it was corrected and still sends.
const (
	ValidKey    = "cni.dev/valid-attachments"
	OldValidKey = "cni.dev/attachments"
)

// InvalidName says what is wrong with a container id or network name, which
// end up in file names, rules and links: ^[a-zA-Z0-9][a-zA-Z0-9_.-]*$ (libcni).
// It returns "" for nothing.
func InvalidName(s string) string {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '_' && c != '.' && c != '-') {
			return "it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'"
		}
	}
	return ""
}
