package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// The files that tell daemons to leave our links alone. That of systemd-networkd has to come before others.
const (
	networkdFile       = "/etc/systemd/network/00-cnibox.network"
	networkManagerFile = "/etc/NetworkManager/conf.d/cnibox.conf"
)

// networkdDirs are where systemd-networkd looks for files of links, the one that counts most first.
var networkdDirs = []string{"/etc/systemd/network", "/run/systemd/network", "/usr/local/lib/systemd/network", "/usr/lib/systemd/network", "/lib/systemd/network"}

// ownLink is a link that plugins make on the host, as daemons match it: a host end, or a bridge.
type ownLink struct {
	name    string // for a host end, one that it could have
	pattern string // how to name it
	kind    string
	class   string // systemd-networkd's Type
}

// ownLinks returns those that the node's networks have. A bridge that the host has for more than containers, as one of a LAN, is its manager's.
func (s *subject) ownLinks() (links []ownLink) {
	for _, n := range s.networks {
		l := ownLink{n.bridge(), n.bridge(), link.KindBridge, link.KindBridge}
		if l.name != "" && s.otherUse(l.name) == "" && !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	if slices.ContainsFunc(s.networks, func(n *network) bool { return n.find(hasHostEnd) != nil }) {
		links = append(links, ownLink{"veth0a1b2c3d", "veth*", "veth", "ether"})
	}
	return links
}

// checkManagers looks whether a daemon that configures links would take our links.
func checkManagers(_ context.Context, s *subject) (list []Finding, err error) {
	if s.runs("systemd-network") {
		list = append(list, s.checkNetworkd()...)
	}
	if s.runs("NetworkManager") {
		list = append(list, s.checkNetworkManager()...)
	}
	return list, nil
}

var networkdTakesLinks = codes.Declare(finding.Code{Name: "networkd-takes-links", Severity: finding.Warning,
	Meaning: "systemd-networkd takes addresses and routes from links that it configures, and may set them down.",
	Remedy:  "a file in `/etc/systemd/network` with `Unmanaged=yes`"})

// checkNetworkd finds the first file of each link that matches it, as systemd-networkd does (systemd.network(5)).
func (s *subject) checkNetworkd() []Finding {
	var taken, patterns []string
	files := configFiles(".network", networkdDirs...)
	for _, l := range s.ownLinks() {
		for _, path := range files {
			sections := readINI(path)
			if !l.matches(sections["Match"]) {
				continue
			}
			if !isYes(last(sections["Link"]["Unmanaged"])) {
				taken = append(taken, l.pattern+" by "+path)
				patterns = append(patterns, l.pattern)
			}
			break
		}
	}
	if taken == nil {
		return nil
	}
	write := finding.Shell(finding.Run("printf", `[Match]\nName=%s\n\n[Link]\nUnmanaged=yes\n`, strings.Join(patterns, " ")).String() + " >" + networkdFile)
	return []Finding{found(networkdTakesLinks, "", finding.Steps(finding.Run("mkdir", "-p", filepath.Dir(networkdFile)), write, finding.Run("networkctl", "reload")),
		"systemd-networkd configures links of containers: %s", strings.Join(taken, "; "))}
}

// matches reports whether all conditions of a section [Match] are met. Those that are not about what every link has are never met by our links.
func (l ownLink) matches(section map[string][]string) bool {
	for key, values := range section {
		is := map[string]string{"Name": l.name, "Kind": l.kind, "Driver": l.kind, "Type": l.class}[key]
		if is == "" || !matchesGlobs(strings.Fields(strings.Join(values, " ")), is) {
			return false
		}
	}
	return len(section) > 0
}

// matchesGlobs reports whether one of some patterns matches or, if the first begins with "!", none does.
func matchesGlobs(patterns []string, name string) bool {
	if len(patterns) == 0 {
		return true
	}
	start, negated := strings.CutPrefix(patterns[0], "!")
	is := slices.ContainsFunc(append([]string{start}, patterns[1:]...), func(p string) bool { return isGlobOf(p, name) })
	return is != negated
}

func isGlobOf(pattern, name string) bool {
	is, err := filepath.Match(pattern, name)
	return err == nil && is
}

var networkManagerTakesLinks = codes.Declare(finding.Code{Name: "networkmanager-takes-links", Severity: finding.Warning,
	Meaning: "NetworkManager may configure links that are not its own, and take them out of their bridge.",
	Remedy:  "a file in `/etc/NetworkManager/conf.d` with `unmanaged-devices`"})

// checkNetworkManager reads which links it is told to leave alone (NetworkManager.conf(5)). Its rules for udev may name veth pairs.
func (s *subject) checkNetworkManager() []Finding {
	var spared []string
	files := append([]string{"/etc/NetworkManager/NetworkManager.conf"},
		configFiles(".conf", "/etc/NetworkManager/conf.d", "/run/NetworkManager/conf.d", "/usr/lib/NetworkManager/conf.d")...)
	for _, path := range files {
		for name, section := range readINI(path) {
			lists := slices.Concat(section["unmanaged-devices"], section["unmanaged-devices+"])
			if strings.HasPrefix(name, "device") && last(section["managed"]) == "0" {
				lists = append(lists, section["match-device"]...)
			}
			for _, list := range lists {
				spared = append(spared, strings.FieldsFunc(list, func(c rune) bool { return c == ';' || c == ',' })...)
			}
		}
	}
	if rules, _ := os.ReadFile("/usr/lib/udev/rules.d/85-nm-unmanaged.rules"); strings.Contains(string(rules), `"veth"`) {
		spared = append(spared, "driver:veth")
	}
	var names, specs []string
	for _, l := range s.ownLinks() {
		if !slices.ContainsFunc(spared, l.isSpared) {
			names, specs = append(names, l.pattern), append(specs, "interface-name:"+l.pattern)
		}
	}
	if names == nil {
		return nil
	}
	write := finding.Shell(finding.Run("printf", `[keyfile]\nunmanaged-devices+=%s\n`, strings.Join(specs, ";")).String() + " >" + networkManagerFile)
	return []Finding{found(networkManagerTakesLinks, "", finding.Steps(finding.Run("mkdir", "-p", filepath.Dir(networkManagerFile)), write, finding.Run("systemctl", "reload", "NetworkManager")),
		"NetworkManager runs, and is not told to leave these links alone: %s", strings.Join(names, ", "))}
}

// isSpared reports whether a specification of devices is of such links: interface-name:veth*, type:bridge, driver:veth or a name alone.
func (l ownLink) isSpared(spec string) bool {
	kind, pattern, ok := strings.Cut(strings.TrimSpace(spec), ":")
	if !ok {
		kind, pattern = "interface-name", kind
	}
	switch kind {
	case "interface-name":
		return isGlobOf(strings.TrimPrefix(pattern, "="), l.name)
	case "type", "driver":
		return pattern == l.kind
	}
	return false
}
