package box

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// sandbox is the container's network namespace, opened when it is first asked for.
// Many a DEL does without: that saves it 0.05 ms.
type sandbox struct {
	path     string
	override bool // our own namespace counts too
	asked    bool
	found    ns.NetNS
	err      error // why there is none
}

func newSandbox(p Process, path string) *sandbox {
	override := p.Getenv("CNI_NETNS_OVERRIDE")
	return &sandbox{path: path, override: override == "1" || strings.EqualFold(override, "true")}
}

// open opens it. There is none at an empty path, where something else is, and where
// our own namespace is.
func (s *sandbox) open() ns.NetNS {
	if !s.asked && s.path != "" {
		s.found, s.err = openForeign(s.path, s.override)
	}
	s.asked = true
	return s.found
}

func openForeign(path string, override bool) (ns.NetNS, error) {
	found, err := netns.Open(path)
	if err != nil {
		return nil, noSandbox("CNI_NETNS: "+err.Error(), "the runtime must make the namespace before it calls ADD or CHECK")
	}
	own, err := netns.IsOwn(found)
	switch {
	case err != nil:
		_ = found.Close()
		return nil, noSandbox("CNI_NETNS: "+err.Error(), "give the plugin a /proc, or CAP_NET_ADMIN over its own network namespace")
	case own && !override:
		_ = found.Close()
		return nil, noSandbox(fmt.Sprintf("CNI_NETNS %s is the plugin's own network namespace", path),
			"give the container a namespace of its own; to attach the host's all the same, set CNI_NETNS_OVERRIDE=1")
	}
	return found, nil
}

func noSandbox(msg, details string) error {
	return &types.Error{Code: types.ErrInvalidNetNS, Msg: msg, Details: details}
}

// check is for ADD and CHECK, which need it.
func (s *sandbox) check(c plugin.Command) error {
	if c == plugin.Add || c == plugin.Check {
		s.open()
	}
	return s.err
}

func (s *sandbox) close() {
	if s.found != nil {
		_ = s.found.Close()
	}
}
