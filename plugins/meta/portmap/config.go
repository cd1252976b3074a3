package portmap

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the portmap plugin reads of a configuration; docs/portmap.md
// explains each key.
type config struct {
	snat     bool
	masqAll  bool
	mappings []mapping

	// unsupported is a valid setting that this version does not have, "" if
	// there is none. It matters when there is something to publish.
	unsupported string
}

// mapping is one of the runtime's portMappings.
type mapping struct {
	hostPort, containerPort uint16
	protocol                uint8
	hostIP                  netip.Addr // the zero Addr: any; unspecified: any of its family
}

// The values of key backend.
const (
	backendNFTables = "nftables"
	backendIPTables = "iptables"
)

// markBit is the bit of the packet mark that the nftables backend uses.
const markBit = 13

func parse(o *conf.Object) (*config, error) {
	c := &config{snat: true}
	o.Bool("snat", &c.snat)
	o.Bool("masqAll", &c.masqAll)
	c.readBackend(o)
	c.readMark(o)
	for _, key := range []string{"conditionsV4", "conditionsV6"} {
		var conditions []string
		o.Strings(key, &conditions)
		if len(conditions) > 0 {
			c.unsupported = key
		}
	}
	o.Object("runtimeConfig").Objects("portMappings", func(e *conf.Object) {
		c.mappings = append(c.mappings, readMapping(e))
	})
	return c, o.Err()
}

func (c *config) readBackend(o *conf.Object) {
	backend := ""
	o.String("backend", &backend)
	switch backend {
	case "", backendNFTables:
	case backendIPTables:
		c.unsupported = `backend "iptables"`
	default:
		o.Fail("backend", `"nftables" or "iptables", or to be left out`, fmt.Sprintf("%q", backend))
	}
}

// readMark reads the two keys that say how connections are marked that are to
// be masqueraded. At most one of them may be used.
func (c *config) readMark(o *conf.Object) {
	var bit *int
	chain := ""
	o.OptionalInt("markMasqBit", &bit)
	o.String("externalSetMarkChain", &chain)
	switch {
	case bit != nil && chain != "":
		o.Fail("externalSetMarkChain", "to be alone, without markMasqBit", fmt.Sprintf("%q", chain))
	case bit != nil && (*bit < 0 || *bit > 31):
		o.Fail("markMasqBit", "a bit from 0 to 31", fmt.Sprint(*bit))
	case bit != nil && *bit != markBit:
		c.unsupported = fmt.Sprintf("markMasqBit %d (other than %d)", *bit, markBit)
	case chain != "":
		c.unsupported = "externalSetMarkChain"
	}
}

func readMapping(o *conf.Object) mapping {
	m := mapping{hostPort: readPort(o, "hostPort"), containerPort: readPort(o, "containerPort")}
	name := ""
	o.String("protocol", &name)
	number, ok := netfilter.Protocol(strings.ToLower(name))
	if !ok {
		o.Fail("protocol", "tcp, udp or sctp", fmt.Sprintf("%q", name))
	}
	m.protocol = number
	plugin.Addr(o, "hostIP", &m.hostIP)
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

// supported returns an error that names what this version does not have.
func (c *config) supported() error {
	if c.unsupported == "" {
		return nil
	}
	return plugin.ConfigError("leave it out: ports are published with nftables", "portmap: this version does not have %s", c.unsupported)
}

// portMaps returns what the mappings ask for, given the container's addresses.
// The first address of each family is published.
func (c *config) portMaps(ips []plugin.IP) ([]netfilter.PortMap, error) {
	var maps distinct
	for _, is := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		container, ok := first(ips, is)
		for _, m := range c.mappings {
			p := netfilter.PortMap{Protocol: m.protocol, HostPort: m.hostPort, Container: netip.AddrPortFrom(container, m.containerPort)}
			if !m.hostIP.IsUnspecified() {
				p.HostIP = m.hostIP
			}
			switch {
			case m.hostIP.IsValid() && !is(m.hostIP):
				// of the other family
			case ok:
				if err := maps.add(p); err != nil {
					return nil, err
				}
			case p.HostIP.IsValid():
				return nil, plugin.ConfigError("publish on an address of a family that the container has, or give the network addresses of that family",
					"hostIP of %s: the container has no address of that family", p)
			}
		}
	}
	return maps.list, nil
}

func first(ips []plugin.IP, is func(netip.Addr) bool) (netip.Addr, bool) {
	for _, ip := range ips {
		if is(ip.Address.Addr()) {
			return ip.Address.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// distinct collects port maps, each once. Runtimes do repeat themselves; what
// they can't want is one port that leads to two.
type distinct struct {
	list []netfilter.PortMap
	of   map[hostPort]netip.AddrPort
}

// hostPort is the host's side of a port map.
type hostPort struct {
	ipv6     bool
	ip       netip.Addr
	protocol uint8
	port     uint16
}

func (d *distinct) add(p netfilter.PortMap) error {
	side := hostPort{ipv6: p.Container.Addr().Is6(), ip: p.HostIP, protocol: p.Protocol, port: p.HostPort}
	before, there := d.of[side]
	switch {
	case there && before == p.Container:
		return nil
	case there:
		return plugin.ConfigError("remove one of the two from the runtime's port mappings",
			"host port %s is mapped to both %s and %s", p, before, p.Container)
	}
	if d.of == nil {
		d.of = map[hostPort]netip.AddrPort{}
	}
	d.of[side] = p.Container
	d.list = append(d.list, p)
	return nil
}
