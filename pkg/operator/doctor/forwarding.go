package doctor

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// value returns a sysctl's value, "" if there is none of that name.
func value(key string) (string, error) {
	v, err := sysctl.Get(key)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return v, err
}

// set writes the command that sets a sysctl.
func set(key, to string) finding.Remedy { return finding.Run("sysctl", "-w", dotted(key)+"="+to) }

// dotted returns a key as people write it. Dots in one with slashes belong to a link's name.
func dotted(key string) string {
	if strings.Contains(key, ".") {
		return key
	}
	return strings.ReplaceAll(key, "/", ".")
}

var forwardingOff = codes.Declare(finding.Code{Name: "forwarding-off", Severity: finding.Error, Fixable: true, Brings: finding.Codes{repair.Broken, packetLost},
	Meaning: "The host does not forward packets: containers reach nothing but the host. Something has set it back after ADD had set it.",
	Remedy:  "`sysctl -w net.ipv4.ip_forward=1`"})

// checkForwarding looks whether the host forwards what containers send, and takes what comes back.
func checkForwarding(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		if !n.isRouted() || len(n.alive) == 0 { // an ADD turns it on
			continue
		}
		var off []string
		var commands finding.Remedy
		for _, key := range s.forwardingKeys(n) {
			v, wrong := value(key)
			err = errors.Join(err, wrong)
			if v == "0" {
				off = append(off, dotted(key))
				if key == all6 {
					commands = append(commands, s.keepRouters()...)
				}
				commands = append(commands, set(key, "1")...)
			}
		}
		if off != nil {
			list = append(list, found(forwardingOff, n.Name, commands, "%s is 0, and has to be 1 for %s of network %s",
				strings.Join(off, ", "), count(len(n.alive), "attachment", "attachments"), n.Name))
		}
	}
	strict, wrong := s.checkReversePath()
	return append(list, strict...), errors.Join(err, wrong)
}

// keepRouters returns the commands that let the host keep routers which it has from advertisements: one that forwards takes none otherwise.
func (s *subject) keepRouters() (commands finding.Remedy) {
	var keys []string
	for _, r := range s.routes {
		l := s.LinkNumbered(r.LinkIndex)
		if l == nil || r.Protocol != unix.RTPROT_RA || !node.IsDefault(r) {
			continue
		}
		key := "net/ipv6/conf/" + l.Name + "/accept_ra"
		if v, err := value(key); err == nil && v == "1" && !slices.Contains(keys, key) {
			keys = append(keys, key)
			commands = append(commands, set(key, "2")...)
		}
	}
	return commands
}

// all4 and all6 let the host forward packets by all links.
const all4, all6 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"

// forwardingKeys returns the sysctls that let packets of a network through. To set the first of IPv4 sets those of all links.
func (s *subject) forwardingKeys(n *network) (keys []string) {
	v4, v6 := n.families()
	if v6 {
		keys = append(keys, all6)
	}
	if v4 {
		keys = append(keys, all4)
	}
	if v, err := value(all4); !v4 || err != nil || v == "0" {
		return keys
	}
	for _, l := range slices.Concat(s.uplinks, []*node.Link{s.Link(n.bridge())}) {
		if l != nil {
			keys = append(keys, "net/ipv4/conf/"+l.Name+"/forwarding")
		}
	}
	return keys
}

var rpFilterStrict = codes.Declare(finding.Code{Name: "rp-filter-strict", Severity: finding.Warning,
	Meaning: "The host drops what containers in several networks answer by their default route to what came by another.",
	Remedy:  "`sysctl -w net.ipv4.conf.all.rp_filter=2`, or the plugin `sbr`"})

// checkReversePath looks for containers with several interfaces on a host that drops packets which come by another link than answers to them
// would leave by. Answers of such a container leave by its default route, unless the plugin sbr has them leave as the question came.
func (s *subject) checkReversePath() (list []Finding, err error) {
	all, err := value("net/ipv4/conf/all/rp_filter")
	if err != nil {
		return nil, err
	}
	byContainer := map[string][]*network{}
	for _, n := range s.networks {
		for _, a := range n.alive {
			if n.isRouted() && n.bridge() != "" && a.ContainerID != "" {
				byContainer[a.ContainerID] = append(byContainer[a.ContainerID], n)
			}
		}
	}
	var containers []string
	for id, networks := range byContainer {
		if len(networks) < 2 || slices.ContainsFunc(networks, func(n *network) bool { return n.find(routesBySource) != nil }) {
			continue
		}
		for _, n := range networks {
			one, wrong := value("net/ipv4/conf/" + n.bridge() + "/rp_filter")
			err = errors.Join(err, wrong)
			if max(all, one) == "1" && !slices.Contains(containers, id) { // the greater of the two counts, and 2 is not strict
				containers = append(containers, id)
			}
		}
	}
	if containers == nil {
		return nil, err
	}
	slices.Sort(containers)
	remedy := finding.Steps(set("net/ipv4/conf/all/rp_filter", "2"), finding.Say(`or add {"type": "sbr"} to the plugins of the networks that have not the default route`))
	return []Finding{found(rpFilterStrict, "", remedy, "rp_filter is 1 (strict), and %s in several networks without the plugin sbr: %s",
		count(len(containers), "container is", "containers are"), some(containers))}, err
}

var bridgeNFOff = codes.Declare(finding.Code{Name: "bridge-nf-off", Severity: finding.Warning,
	Meaning: "A Service of Kubernetes does not work from a container on the same bridge as the one behind it.",
	Remedy:  "`sysctl -w net.bridge.bridge-nf-call-iptables=1`"})

// checkBridgedPackets looks whether a Service of Kubernetes can lead to a container on the same bridge: its answer, which the bridge does
// not route, has to pass the packet filter to be changed back.
func checkBridgedPackets(_ context.Context, s *subject) (list []Finding, err error) {
	const key = "net/bridge/bridge-nf-call-iptables"
	i := slices.IndexFunc(s.networks, func(n *network) bool { return n.bridge() != "" && n.isRouted() })
	if !s.filter.kubeProxy || i < 0 {
		return nil, nil
	}
	v, err := value(key)
	n := s.networks[i]
	on := set(key, "1")
	if v == "" {
		on = finding.Steps(finding.Run("modprobe", "br_netfilter"), on)
	}
	for _, l := range s.Links() {
		if why := s.otherUse(l.Name); l.Kind == link.KindBridge && why != "" {
			on = finding.Say("%s: its packets would pass the packet filter, too; see that it lets them, then run: %s", why, on.InLine())
			break
		}
	}
	switch v {
	case "0":
		list = append(list, found(bridgeNFOff, n.Name, on, "%s is 0, kube-proxy's rules are here, and network %s has the bridge %s", dotted(key), n.Name, n.bridge()))
	case "":
		list = append(list, found(bridgeNFOff, n.Name, on,
			"the kernel module br_netfilter is not loaded, kube-proxy's rules are here, and network %s has the bridge %s", n.Name, n.bridge()))
	}
	return list, err
}
