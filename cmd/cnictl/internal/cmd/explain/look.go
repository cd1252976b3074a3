package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/utils/sysctl"

	pkglink "github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/plugins/known"
)

// looks are what messages.yaml names.
var looks = map[string]look{
	"bridge": lookAtBridge, "dhcp": lookAtDHCP, "flannel": lookAtFlannel, "holder": lookAtHolder, "ipv6": lookAtIPv6, "link": lookAtLink,
	"namespace": lookAtNamespace, "networks": lookAtNetworks, "path": lookAtPath, "plugin": lookAtPlugin, "pools": lookAtPools, "port": lookAtPort,
	"programs": lookAtPrograms,
}

// lookAtPools says how full the pools are that the message may be about.
func lookAtPools(n *node.Node, about map[string]string) (here []string) {
	for _, w := range n.Networks {
		for _, p := range w.Pools {
			if about["range"] != "" && !strings.Contains(about["range"], p.Range) && w.Name != about["failedNetwork"] {
				continue
			}
			text := fmt.Sprintf("network %s: %d of %d addresses of %s are taken", w.Name, p.Used, p.Size, p.Range)
			if p.Gone > 0 {
				text += fmt.Sprintf(", %d of them by containers that are gone: cnictl gc %s frees them", p.Gone, w.Name)
			}
			here = append(here, text)
		}
	}
	if here == nil {
		here = append(here, "no pool of this node has that range")
	}
	return here
}

// lookAtHolder says who has an address.
func lookAtHolder(n *node.Node, about map[string]string) []string {
	address := about["address"]
	if prefix, err := netip.ParsePrefix(address); err == nil {
		address = prefix.Addr().String()
	}
	if address == "" {
		return nil
	}
	return describe(n, "address "+address, address)
}

// lookAtPort says who has a port of the host.
func lookAtPort(n *node.Node, about map[string]string) []string {
	if about["port"] == "" {
		return nil
	}
	return describe(n, "port "+about["port"], ":"+about["port"])
}

func describe(n *node.Node, what, name string) (here []string) {
	for _, m := range n.Find(name) {
		a := m.Attachment
		text := fmt.Sprintf("%s is of %s, which is %s: %s", what, a.Owner, a.State, a.Why)
		if a.Since != nil {
			text += ", since " + a.Since.Format("2006-01-02 15:04:05")
		}
		here = append(here, text)
	}
	if here == nil {
		here = append(here, "no attachment that is known on this node has "+what)
	}
	return here
}

// lookAtBridge says what a bridge has, and which networks use it.
func lookAtBridge(n *node.Node, about map[string]string) []string {
	name := cmp.Or(about["bridge"], about["link"])
	l := n.Link(name)
	if l == nil {
		return lookAtLink(n, map[string]string{"link": name})
	}
	ports := 0
	for _, other := range n.Links() {
		if other.Master == name {
			ports++
		}
	}
	here := []string{fmt.Sprintf("%s has the addresses %s, and %d of %d ports", name, join(l.Addresses), ports, pkglink.MostPorts)}
	for _, w := range n.Networks {
		uses := func(p *netconf.Part) bool { return p.Uses(name) }
		isOn := func(a *node.Attachment) bool { return a.Network == w.Name && a.Master == name }
		if w.List != nil && slices.ContainsFunc(netconf.Of(w.List, w.File, known.Plugins.Find).Inside(), uses) || slices.ContainsFunc(n.Attachments, isOn) {
			here = append(here, fmt.Sprintf("network %s uses it (%s)", w.Name, cmp.Or(w.File, "of which there is no file any more")))
		}
	}
	return here
}

func join(prefixes []netip.Prefix) string {
	var all []string
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// lookAtLink says whether a link is on the host.
func lookAtLink(n *node.Node, about map[string]string) []string {
	name := cmp.Or(about["link"], about["link2"], about["link3"])
	if l := n.Link(name); l != nil {
		return []string{fmt.Sprintf("the host has %s (%s, up: %v)", name, l.Kind, l.Up)}
	}
	var others []string
	for _, l := range n.Links() {
		if !strings.HasPrefix(l.Name, "veth") && l.Name != "lo" { // which host ends are called
			others = append(others, l.Name)
		}
	}
	has := cmp.Or(strings.Join(others, ", "), "none but host ends of containers")
	if name == "" {
		return []string{"the host has the links " + has}
	}
	return []string{fmt.Sprintf("the host has no link %s; it has %s", name, has)}
}

// lookAtNamespace says what is at a path.
func lookAtNamespace(_ *node.Node, about map[string]string) []string {
	path := cmp.Or(about["path"], about["path2"])
	if path == "" {
		return nil
	}
	ns, err := netns.Open(path)
	if err != nil {
		return []string{err.Error()}
	}
	defer ns.Close()
	return []string{path + " is a network namespace now"}
}

// lookAtNetworks says which networks there are, in the directory that the message names or in that of this node.
func lookAtNetworks(n *node.Node, about map[string]string) (here []string) {
	networks, broken := n.Networks, n.Unread
	dir := cmp.Or(about["dir"], about["dir2"], about["dir3"], about["dir4"])
	if dir != "" {
		var err error
		if networks, broken, err = node.Load(dir); err != nil {
			return []string{err.Error()}
		}
	}
	for _, w := range networks {
		if w.File != "" {
			here = append(here, fmt.Sprintf("%s is network %s (cniVersion %s): %s", w.File, w.Name, cmp.Or(w.CNIVersion, "none"), strings.Join(w.Plugins, ", ")))
		}
	}
	for _, b := range broken {
		here = append(here, fmt.Sprintf("%s can't be read: %s", b.What, b.Why))
	}
	if here == nil {
		here = append(here, cmp.Or(dir, "the directory of networks")+" has no network")
	}
	return here
}

// pluginDirs are where distributions and runtimes have plugins.
var pluginDirs = []string{node.DefaultBinDir, "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/libexec/cni", "/usr/local/lib/cni", "/usr/lib/podman", "/usr/libexec/podman"}

// lookAtPlugin says where a plugin is.
func lookAtPlugin(_ *node.Node, about map[string]string) (here []string) {
	name := cmp.Or(about["plugin"], about["plugin2"], about["plugin3"])
	asked := strings.FieldsFunc(cmp.Or(about["dirs"], about["dirs2"], about["dirs3"]), func(c rune) bool { return c == ' ' || c == ':' || c == ',' })
	for _, dir := range asked {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			here = append(here, dir+" is no directory here")
		}
	}
	if name != filepath.Base(name) {
		return here
	}
	dirs := slices.Concat(asked, pluginDirs)
	slices.Sort(dirs)
	found := false
	for _, dir := range slices.Compact(dirs) {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			found = true
			here = append(here, fmt.Sprintf("%s has %s", dir, name))
		}
	}
	if !found {
		here = append(here, fmt.Sprintf("%s is in none of the usual directories of this node", name))
	}
	return here
}

func lookAtDHCP(*node.Node, map[string]string) (here []string) {
	for _, row := range known.Plugins {
		if d := row.Facts(nil).Daemon; d != nil {
			here = append(here, presence(d.Socket))
		}
	}
	return here
}

func lookAtFlannel(*node.Node, map[string]string) (here []string) {
	for _, row := range known.Plugins {
		if s := row.Facts(nil).Subnets; s != nil {
			here = append(here, presence(s.Path))
		}
	}
	return here
}

func lookAtPath(_ *node.Node, about map[string]string) []string {
	return []string{presence(strings.TrimSuffix(about["path"], ":"))}
}

func presence(path string) string {
	if _, err := os.Stat(path); err != nil {
		return err.Error()
	}
	return path + " is there now"
}

// lookAtPrograms says which programs for the packet filter there are.
func lookAtPrograms(*node.Node, map[string]string) (here []string) {
	for _, program := range []string{"iptables", "ip6tables", "iptables-legacy", "ip6tables-legacy", "nft"} {
		path, err := exec.LookPath(program)
		if err != nil {
			here = append(here, program+" is not in "+strconv.Quote(os.Getenv("PATH")))
			continue
		}
		here = append(here, program+" is "+path)
	}
	return here
}

// lookAtIPv6 says whether IPv6 is on.
func lookAtIPv6(*node.Node, map[string]string) []string {
	off, err := sysctl.Sysctl("net.ipv6.conf.all.disable_ipv6")
	if err != nil {
		return []string{"this kernel has no IPv6"}
	}
	return []string{"net.ipv6.conf.all.disable_ipv6 is " + off}
}
