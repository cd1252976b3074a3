package box

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// maxIfName is IFNAMSIZ less the terminating zero.
const maxIfName = 15

// cacheDir is libcni's cache unless the runtime has another one, which CNIBOX_CACHE_DIR names.
const cacheDir = "/var/lib/cni"

// maxStdin bounds the configuration, in bytes. The largest there are, with a
// GC list of a full node, have some hundred KiB.
const maxStdin = 16 << 20

// request reads and validates a call. Nothing is changed by it. The version is
// what an error document should name, as far as it is known.
func (b *Box) request(p Process, row *plugin.Descriptor) (r *plugin.Request, version string, err error) {
	version = plugin.CurrentVersion
	r = &plugin.Request{Command: plugin.Command(p.Getenv("CNI_COMMAND")), Plugins: b.Plugins}
	if err := environment(p, r); err != nil {
		return nil, version, err
	}
	stdin, err := standardInput(p)
	if err != nil {
		return nil, version, err
	}
	err = r.Configure(stdin, row.Oldest)
	if plugin.AtLeast(r.Version, "0.1.0") {
		version = r.Version
	}
	if err != nil {
		return nil, version, err
	}
	return r, version, nil
}

func standardInput(p Process) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(p.Stdin, maxStdin+1))
	switch {
	case err != nil:
		return nil, &types.Error{
			Code: types.ErrIOFailure, Msg: "read the configuration from standard input: " + err.Error(),
			Details: "the runtime writes it there; see the CNI specification",
		}
	case len(data) > maxStdin:
		return nil, &types.Error{
			Code: types.ErrIOFailure, Msg: fmt.Sprintf("the configuration on standard input is longer than %d MiB", maxStdin>>20),
			Details: "check what the runtime sends",
		}
	}
	return data, nil
}

// variable is one CNI_… variable.
type variable struct {
	name    string
	to      *string
	invalid func(string) string // what is wrong with a value, "" for nothing
}

func environment(p Process, r *plugin.Request) error {
	var path string
	paths := variable{"CNI_PATH", &path, nil}
	var variables []variable
	switch r.Command {
	case plugin.Add, plugin.Del, plugin.Check:
		variables = []variable{
			{"CNI_CONTAINERID", &r.ContainerID, plugin.InvalidName},
			{"CNI_NETNS", &r.Netns, nil},
			{"CNI_IFNAME", &r.IfName, invalidIfName},
			paths,
		}
	case plugin.GC, plugin.Status:
		variables = []variable{paths}
	default:
		return &types.Error{
			Code: types.ErrInvalidEnvironmentVariables, Msg: fmt.Sprintf("unknown CNI_COMMAND: %s", r.Command),
			Details: "set it to ADD, DEL, CHECK, GC, STATUS or VERSION",
		}
	}
	var missing []string
	for _, v := range variables {
		value := p.Getenv(v.name)
		optional := v.name == "CNI_NETNS" && r.Command == plugin.Del
		switch {
		case value == "" && !optional:
			missing = append(missing, v.name)
		case value != "" && v.invalid != nil && v.invalid(value) != "":
			return &types.Error{
				Code: types.ErrInvalidEnvironmentVariables, Msg: fmt.Sprintf("%s is %q: %s", v.name, value, v.invalid(value)),
				Details: "the runtime sets it; correct it there",
			}
		}
		*v.to = value
	}
	if missing != nil {
		return &types.Error{
			Code: types.ErrInvalidEnvironmentVariables, Msg: fmt.Sprintf("required env variables [%s] missing", strings.Join(missing, ",")),
			Details: fmt.Sprintf("a runtime sets them for %s; see the CNI specification, section Parameters", r.Command),
		}
	}
	for _, dir := range strings.Split(path, ":") {
		if dir != "" {
			r.Path = append(r.Path, dir)
		}
	}
	r.Args = p.Getenv("CNI_ARGS")
	r.Results = filepath.Join(cmp.Or(p.Getenv("CNIBOX_CACHE_DIR"), cacheDir), "results")
	return nil
}

func invalidIfName(s string) string {
	switch {
	case len(s) > maxIfName:
		return "interface name should be less than 16 characters"
	case s == "." || s == "..":
		return "interface name is . or .."
	case strings.Contains(s, "%"):
		return "interface name contains %, which the kernel takes for a pattern"
	case strings.ContainsFunc(s, func(c rune) bool { return c == '/' || c == ':' || unicode.IsSpace(c) }):
		return "interface name contains / or : or whitespace characters"
	}
	return ""
}
