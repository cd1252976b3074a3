package box

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// cacheDir is libcni's cache unless the runtime has another one, which CNIBOX_CACHE_DIR names.
const cacheDir = "/var/lib/cni"

// maxStdin bounds the configuration, in bytes. The largest there are, with a GC list of a full node, have some hundred KiB.
const maxStdin = 16 << 20

// request reads and validates a call. Nothing is changed by it. When it fails, the request has what was read before. The version is what
// an error document should name, as far as it is known.
func (b *Box) request(p Process, row *plugin.Descriptor) (r *plugin.Request, version string, err error) {
	version = plugin.CurrentVersion
	r = &plugin.Request{Command: plugin.Command(p.Getenv("CNI_COMMAND")), Plugins: b.Plugins}
	if err := environment(p, r); err != nil {
		return r, version, err
	}
	config, err := configuration(p, limit(r.Command))
	if err != nil {
		return r, version, err
	}
	err = request.Read(r, config, *row)
	if plugin.AtLeast(r.Version, "0.1.0") {
		version = r.Version
	}
	return r, version, err
}

// configuration reads what the runtime sends, which has to end within the time of the call.
func configuration(p Process, wait time.Duration) (*conf.Object, error) {
	type input struct {
		data []byte
		err  error
	}
	read := make(chan input, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(p.Stdin, maxStdin+1))
		read <- input{data, err}
	}()
	in := input{err: fmt.Errorf("it has not ended after %v", wait)}
	select {
	case in = <-read:
	case <-time.After(wait):
	}
	if in.err != nil {
		return nil, types.NewError(types.ErrIOFailure, "read the configuration from standard input: "+in.err.Error(),
			"the runtime writes it there, and closes it; see the CNI specification")
	}
	if len(in.data) > maxStdin {
		return nil, types.NewError(types.ErrIOFailure, fmt.Sprintf("the configuration on standard input is longer than %d MiB", maxStdin>>20), "check what the runtime sends")
	}
	config, err := conf.Parse(in.data)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the configuration on standard input is "+err.Error(), "check the file in /etc/cni/net.d")
	}
	return config, nil
}

func environment(p Process, r *plugin.Request) error {
	var missing []string
	required := func(name string) string {
		value := p.Getenv(name)
		if value == "" {
			missing = append(missing, name)
		}
		return value
	}
	switch r.Command {
	case plugin.Add, plugin.Check:
		r.ContainerID, r.Netns, r.IfName = required("CNI_CONTAINERID"), required("CNI_NETNS"), required("CNI_IFNAME")
	case plugin.Del:
		r.ContainerID, r.Netns, r.IfName = required("CNI_CONTAINERID"), p.Getenv("CNI_NETNS"), required("CNI_IFNAME")
	case plugin.GC, plugin.Status:
	default:
		return invalid("set it to ADD, DEL, CHECK, GC, STATUS or VERSION", "unknown CNI_COMMAND: %s", r.Command)
	}
	r.Args, r.Path = p.Getenv("CNI_ARGS"), strings.FieldsFunc(required("CNI_PATH"), func(c rune) bool { return c == ':' })
	if err := plugin.ValidateName(r.ContainerID); err != nil {
		return invalid("the runtime sets it; correct it there", "CNI_CONTAINERID is %q: %v", r.ContainerID, err)
	}
	if err := link.ValidateName(r.IfName); r.IfName != "" && err != nil {
		return invalid("the runtime sets it; correct it there", "CNI_IFNAME is %q: %v", r.IfName, err)
	}
	if missing != nil {
		return invalid(fmt.Sprintf("a runtime sets them for %s; see the CNI specification, section Parameters", r.Command),
			"required env variables [%s] missing", strings.Join(missing, ","))
	}
	r.Results = filepath.Join(cmp.Or(p.Getenv("CNIBOX_CACHE_DIR"), cacheDir), "results")
	return nil
}

// invalid returns an error about the environment (code 4), and what to do about it.
func invalid(remedy, format string, args ...any) error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf(format, args...), remedy)
}
