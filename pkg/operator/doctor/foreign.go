package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trust"
)

var networkdTakesRoutes = codes.Declare(finding.Code{Name: "networkd-takes-routes", Severity: finding.Warning,
	Meaning: "When systemd-networkd starts again, it removes routes and policy rules that it has not made itself: containers of other nodes are not reached any more.",
	Remedy:  "a file in `/etc/systemd/networkd.conf.d` with `ManageForeignRoutes=no` and `ManageForeignRoutingPolicyRules=no`"})

const networkdForeignFile = "/etc/systemd/networkd.conf.d/cnibox.conf"

// checkForeign looks whether systemd-networkd would take what daemons of other plugins, or flannel's, have put on the host. Ours put no policy
// rules there, and their routes are by links that checkManagers looks at.
func checkForeign(_ context.Context, s *subject) (list []Finding, err error) {
	isOthers := func(n *network) bool {
		return n.find(needsSubnetFile) != nil || slices.ContainsFunc(n.parts, func(p *netconf.Part) bool { return p.Row == nil })
	}
	if !s.runs("systemd-network") || !slices.ContainsFunc(s.networks, isOthers) {
		return nil, nil
	}
	takes, err := foreignOf()
	var taken []string
	if takes["ManageForeignRoutes"] {
		for _, l := range s.Links() {
			is := func(r netlink.Route) bool {
				return r.LinkIndex == l.Link.Attrs().Index && !node.IsDefault(r) && isForeign(int(r.Protocol))
			}
			if n := countOf(s.routes, is); n > 0 && s.isNetworkds(l.Name, l.Kind) {
				taken = append(taken, fmt.Sprintf("%s by %s", count(n, "route", "routes"), l.Name))
			}
		}
	}
	if takes["ManageForeignRoutingPolicyRules"] {
		rules, wrong := s.Rules()
		err = errors.Join(err, wrong)
		if n := countOf(rules, func(r netlink.Rule) bool { return isForeign(int(r.Protocol)) }); n > 0 {
			taken = append(taken, count(n, "policy rule", "policy rules"))
		}
	}
	if taken == nil {
		return nil, err
	}
	write := finding.Shell(finding.Run("printf", `[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n`).String() + " >" + networkdForeignFile)
	return []Finding{found(networkdTakesRoutes, "", finding.Steps(finding.Run("mkdir", "-p", filepath.Dir(networkdForeignFile)), write,
		finding.Say("and have it read at a time when nobody minds: systemctl restart systemd-networkd")),
		"systemd-networkd is not told to leave alone what others have made: %s", strings.Join(taken, ", "))}, err
}

func countOf[T any](list []T, is func(T) bool) (n int) {
	for _, e := range list {
		if is(e) {
			n++
		}
	}
	return n
}

// isForeign reports whether a route or rule with a mark of its maker is one that systemd-networkd takes for somebody else's: it marks its own as
// static, and leaves the kernel's alone.
func isForeign(protocol int) bool {
	return !slices.Contains([]int{unix.RTPROT_KERNEL, unix.RTPROT_STATIC, unix.RTPROT_DHCP, unix.RTPROT_RA}, protocol)
}

// isNetworkds reports whether systemd-networkd configures a link.
func (s *subject) isNetworkds(name, kind string) bool {
	class := "ether"
	if kind == link.KindBridge {
		class = link.KindBridge
	}
	l := ownLink{name, name, kind, class}
	for _, path := range configFiles(".network", networkdDirs...) {
		if sections := readINI(path); l.matches(sections["Match"]) {
			return !isYes(last(sections["Link"]["Unmanaged"]))
		}
	}
	return false
}

// foreignOf returns what systemd-networkd takes from others (networkd.conf(5)): both, unless it is told otherwise. One main file counts, and of
// the others the last.
func foreignOf() (takes map[string]bool, err error) {
	takes = map[string]bool{"ManageForeignRoutes": true, "ManageForeignRoutingPolicyRules": true}
	var dirs, files []string
	for _, dir := range networkdDirs {
		above := filepath.Dir(dir)
		dirs = append(dirs, filepath.Join(above, "networkd.conf.d"))
		if main := filepath.Join(above, "networkd.conf"); files == nil && !errors.Is(trust.Host.Check(main), fs.ErrNotExist) {
			files = []string{main}
		}
	}
	for _, path := range append(files, configFiles(".conf", dirs...)...) {
		if wrong := trust.Host.Check(path); wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		section := readINI(path)["Network"]
		for key := range takes {
			if v := last(section[key]); v != "" {
				takes[key] = isYes(v)
			}
		}
	}
	return takes, err
}
