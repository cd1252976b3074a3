package portmap

import (
	"fmt"
	"net/netip"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// config is what the portmap plugin reads of a configuration; docs/plugins/portmap.md
// explains each key.
type config struct {
	snat                     bool
	masqAll                  bool
	markBit                  int
	setMarkChain             string
	conditions4, conditions6 []string
	backend                  netfilter.Wish
	mappings                 []mapping
}

// mapping is one of the runtime's portMappings.
type mapping struct {
	hostPort, containerPort uint16
	protocol                uint8
	hostIP                  netip.Addr // the zero Addr: any; unspecified: any of its family
}

// defaultMarkBit is the reference plugin's.
const defaultMarkBit = 13

func parse(o *conf.Object) (*config, error) {
	c := &config{snat: true, markBit: defaultMarkBit, backend: netfilter.Wish{Key: "backend"}}
	o.Bool("snat", &c.snat)
	o.Bool("masqAll", &c.masqAll)
	o.String("backend", &c.backend.Value)
	c.readMark(o)
	o.Strings("conditionsV4", &c.conditions4)
	o.Strings("conditionsV6", &c.conditions6)
	o.Object("runtimeConfig").Objects("portMappings", func(e *conf.Object) {
		c.mappings = append(c.mappings, readMapping(e))
	})
	if err := o.Err(); err != nil {
		return nil, err
	}
	c.sortConditions("conditionsV4", c.conditions4)
	c.sortConditions("conditionsV6", c.conditions6)
	return c, c.backend.Validate()
}

// sortConditions finds out whose language conditions are in, as the reference
// plugin does, by the first character: iptables' options begin with - or !.
func (c *config) sortConditions(key string, words []string) {
	switch {
	case len(words) == 0:
	case strings.HasPrefix(words[0], "-"), strings.HasPrefix(words[0], "!"):
		c.backend.IPTables = key + " (in the words of iptables)"
	default:
		c.backend.NFTables = key + " (in the words of nft)"
	}
}

// readMark reads the two keys that say how connections are marked that are to
// be masqueraded. At most one of them may be used.
func (c *config) readMark(o *conf.Object) {
	var bit *int
	o.OptionalInt("markMasqBit", &bit)
	o.String("externalSetMarkChain", &c.setMarkChain)
	switch {
	case bit != nil && c.setMarkChain != "":
		o.Fail("externalSetMarkChain", "to be alone, without markMasqBit", fmt.Sprintf("%q", c.setMarkChain))
	case bit != nil && (*bit < 0 || *bit > 31):
		o.Fail("markMasqBit", "a bit from 0 to 31", fmt.Sprint(*bit))
	case bit != nil && *bit != defaultMarkBit:
		c.markBit = *bit
		c.backend.IPTables = "markMasqBit (other than 13)"
	case c.setMarkChain != "":
		c.backend.IPTables = "externalSetMarkChain"
	}
}

func readMapping(o *conf.Object) mapping {
	m := mapping{hostPort: readPort(o, "hostPort"), containerPort: readPort(o, "containerPort")}
	name := ""
	o.String("protocol", &name)
	number, ok := spec.Protocol(strings.ToLower(name))
	if !ok {
		o.Fail("protocol", "tcp, udp or sctp", fmt.Sprintf("%q", name))
	}
	m.protocol = number
	result.ReadAddr(o, "hostIP", &m.hostIP)
	m.hostIP = m.hostIP.Unmap()
	return m
}

func readPort(o *conf.Object, key string) uint16 {
	port := 0
	o.Int(key, &port)
	if port < 1 || port > 65535 {
		o.Fail(key, "a port from 1 to 65535", fmt.Sprint(port))
	}
	return uint16(port)
}

// portMaps returns what the mappings ask for, given the container's addresses.
// The first address of each family is published; a mapping of a family of which
// there is none is left out.
func (c *config) portMaps(ips []*types100.IPConfig) ([]spec.PortMap, error) {
	var maps []spec.PortMap
	for _, is := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		container, ok := first(ips, is)
		if !ok {
			continue
		}
		for _, m := range c.mappings {
			if m.hostIP.IsValid() && !is(m.hostIP) {
				continue
			}
			p := spec.PortMap{Protocol: m.protocol, HostPort: m.hostPort, Container: netip.AddrPortFrom(container, m.containerPort)}
			if !m.hostIP.IsUnspecified() {
				p.HostIP = m.hostIP
			}
			maps = append(maps, p)
		}
	}
	return distinct(maps)
}

func first(ips []*types100.IPConfig, is func(netip.Addr) bool) (netip.Addr, bool) {
	for _, ip := range ips {
		if a := result.Addr(ip.Address.IP); is(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// distinct returns port maps, each once. Runtimes do repeat themselves; what
// they can't want is one port that leads to two.
func distinct(maps []spec.PortMap) ([]spec.PortMap, error) {
	targets := make(map[spec.PortMap]netip.AddrPort, len(maps))
	once := maps[:0]
	for _, p := range maps {
		side := p // the host's: a family has but one address of the container
		side.Container = netip.AddrPortFrom(p.Container.Addr(), 0)
		switch before, there := targets[side]; {
		case !there:
			targets[side] = p.Container
			once = append(once, p)
		case before != p.Container:
			return nil, plugin.ConfigError("remove one of the two from the runtime's port mappings",
				"host port %s is mapped to both %s and %s", p, before, p.Container)
		}
	}
	return once, nil
}
