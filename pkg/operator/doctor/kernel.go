package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// feature is a kind of link that a kernel may lack. To make one is how to find out, and no plugin's STATUS makes anything.
type feature struct {
	name    string
	module  string // that has it, "" if it is never in one
	plugins []string
	probe   netlink.Link
}

const vlanFiltering = "bridges that filter VLANs"

func features() []feature {
	attrs := func() netlink.LinkAttrs { return netlink.LinkAttrs{Name: "probe0"} }
	return []feature{
		{"links of type bridge", "bridge", []string{"bridge"}, &netlink.Bridge{LinkAttrs: attrs()}},
		{"links of type veth", "veth", []string{"bridge", "ptp"}, &netlink.Veth{LinkAttrs: attrs(), PeerName: "probe1"}},
		{"links of type macvlan", "macvlan", []string{"macvlan"}, &netlink.Macvlan{LinkAttrs: attrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}},
		{"links of type ipvlan", "ipvlan", []string{"ipvlan"}, &netlink.IPVlan{LinkAttrs: attrs()}},
		{"links of type vlan", "8021q", []string{"vlan"}, &netlink.Vlan{LinkAttrs: attrs(), VlanId: 5, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}},
		{"links of type dummy", "dummy", []string{"dummy"}, &netlink.Dummy{LinkAttrs: attrs()}},
		{"links of type vrf", "vrf", []string{"vrf"}, &netlink.Vrf{LinkAttrs: attrs(), Table: 5}},
		{vlanFiltering, "", []string{"bridge"}, &netlink.Bridge{LinkAttrs: attrs(), VlanFiltering: new(true)}},
	}
}

// isUsed reports whether a network needs the feature.
func (f feature) isUsed(n *network) bool {
	p := n.find(f.plugins...)
	return p != nil && (f.name != vlanFiltering || p.Config.Has("vlan") || p.Config.Has("vlanTrunk"))
}

var (
	kernelFeatureMissing = codes.Declare(finding.Code{Name: "kernel-feature-missing", Severity: finding.Error,
		Meaning: "No container gets an interface of this network.",
		Remedy:  "`modprobe -a MODULE`"})
	kernelUnusedFeatures = codes.Declare(finding.Code{Name: "kernel-unused-features", Severity: finding.Info,
		Meaning: "What plugins could use that this kernel lacks."})
)

// checkKernel probes the features that networks use. Of the others it probes those for which there is no module, since a probe can load one,
// which then stays.
func checkKernel(_ context.Context, s *subject) (list []Finding, err error) {
	var unused []string
	for _, f := range features() {
		i := slices.IndexFunc(s.networks, f.isUsed)
		if i < 0 && hasModule(cmp.Or(f.module, "bridge")) {
			continue
		}
		lacks, wrong := f.isMissing()
		switch {
		case wrong != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, wrong))
		case lacks && i >= 0:
			n := s.networks[i]
			list = append(list, found(kernelFeatureMissing, n.Name, modprobe(f.module), "the kernel has no %s, and network %s needs them", f.name, n.Name))
		case lacks:
			unused = append(unused, f.name)
		}
	}
	if unused != nil {
		list = append(list, found(kernelUnusedFeatures, "", nil, "the kernel has no %s; no network here uses them",
			strings.ReplaceAll(strings.Join(unused, ", "), ", links of type", ",")))
	}
	return list, err
}

// modprobe is the remedy for a feature that can be in modules, separated by commas.
func modprobe(modules string) finding.Remedy {
	names := strings.FieldsFunc(modules, func(c rune) bool { return c == ',' || c == ' ' })
	if names == nil {
		return finding.Say("use a kernel that is built with it")
	}
	return finding.Steps(finding.Run(append([]string{"modprobe", "-a"}, names...)...), finding.Say("where there is no such module: use a kernel that has it"))
}

// isMissing makes the link in a network namespace of its own.
func (f feature) isMissing() (lacks bool, err error) {
	if err = netns.InNew(f.make); errors.Is(err, unix.EOPNOTSUPP) {
		return true, nil
	}
	return false, err
}

func (f feature) make() error {
	switch f.probe.(type) {
	case *netlink.Macvlan, *netlink.IPVlan, *netlink.Vlan: // are made on another link
		below := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "base0"}}
		if err := netlink.LinkAdd(below); err != nil {
			return err
		}
		f.probe.Attrs().ParentIndex = below.Index
	}
	return netlink.LinkAdd(f.probe)
}

// hasModule reports whether this kernel has a module, built in or as a file.
func hasModule(name string) bool {
	var system unix.Utsname
	if unix.Uname(&system) != nil {
		return false
	}
	for _, list := range []string{"modules.builtin", "modules.dep"} {
		text, _ := os.ReadFile(filepath.Join("/lib/modules", unix.ByteSliceToString(system.Release[:]), list))
		if strings.Contains(string(text), "/"+name+".ko") {
			return true
		}
	}
	return false
}
