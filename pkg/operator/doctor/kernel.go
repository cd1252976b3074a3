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
	"github.com/cnibox/cnibox/pkg/plugin"
)

// feature is what some plugins need. To make a link with it is how to find out whether the kernel has it, and no plugin's STATUS makes anything.
type feature struct{ plugin.Feature }

// features are those that plugins need. Those that are never in a module of their own come last.
func (s *subject) features() (list []feature) {
	for _, row := range s.Plugins {
		for _, f := range row.Facts(nil).Kernel {
			if !slices.ContainsFunc(list, func(k feature) bool { return k.Name == f.Name }) {
				list = append(list, feature{f})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b feature) int { return cmp.Compare(min(len(b.Module), 1), min(len(a.Module), 1)) })
	return list
}

// isUsed reports whether a network needs the feature.
func (f feature) isUsed(n *network) bool {
	return n.find(func(facts plugin.Facts) bool {
		return slices.ContainsFunc(facts.Kernel, func(k plugin.Feature) bool { return k.Name == f.Name && !k.Unused })
	}) != nil
}

var (
	kernelFeatureMissing = codes.Declare(finding.Code{Name: "kernel-feature-missing", Severity: finding.Error,
		Meaning: "No container gets an interface of this network.",
		Remedy:  "`modprobe -a MODULE`"})
	kernelUnusedFeatures = codes.Declare(finding.Code{Name: "kernel-unused-features", Severity: finding.Info,
		Meaning: "This kernel lacks features that plugins could use."})
)

// checkKernel probes the features that networks use. Of the others it probes those for which there is no module, since a probe can load one,
// which then stays.
func checkKernel(_ context.Context, s *subject) (list []Finding, err error) {
	var unused []string
	for _, f := range s.features() {
		i := slices.IndexFunc(s.networks, f.isUsed)
		if i < 0 && hasModule(cmp.Or(f.Module, f.Probe.Type())) {
			continue
		}
		lacks, wrong := f.isMissing()
		switch {
		case wrong != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", f.Name, wrong))
		case lacks && i >= 0:
			n := s.networks[i]
			list = append(list, found(kernelFeatureMissing, n.Name, modprobe(f.Module), "the kernel has no %s, and network %s needs them", f.Name, n.Name))
		case lacks:
			unused = append(unused, f.Name)
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
	if len(names) == 0 {
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
	attrs := f.Probe.Attrs()
	attrs.Name = "probe0"
	switch f.Probe.(type) {
	case *netlink.Macvlan, *netlink.IPVlan, *netlink.Vlan: // are made on another link
		below := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "base0"}}
		if err := netlink.LinkAdd(below); err != nil {
			return err
		}
		attrs.ParentIndex = below.Index
	}
	return netlink.LinkAdd(f.Probe)
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
