package newnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/names"
	pkgplugin "github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// Kind is a kind of network, with what can be said about it.
type Kind struct {
	Name  string
	Short string

	Routed bool // by the host: ports, a firewall and limits make sense
	Subnet bool // it needs a subnet of its own
	LAN    bool // its containers are on a network that is there: ranges and DHCP
}

// Kinds are all kinds.
var Kinds = []Kind{
	{Name: "bridge", Short: "Containers behind a bridge of this host, which hides them behind its own address", Routed: true, Subnet: true},
	{Name: "ptp", Short: "Each container on a link of its own to this host, which hides them behind its own address", Routed: true, Subnet: true},
	{Name: "macvlan", Short: "Containers with addresses of the LAN, and MAC addresses of their own", LAN: true},
	{Name: "ipvlan", Short: "Containers with addresses of the LAN, and the host's MAC address", LAN: true},
	{Name: "vlan", Short: "One container in a VLAN of the LAN", LAN: true},
	{Name: "host-device", Short: "One container that gets a network card of this host", LAN: true},
	{Name: "dummy", Short: "A link with an address, that leads nowhere", Subnet: true},
	{Name: "tap", Short: "A link for a virtual machine, or another program in the container", Subnet: true},
	{Name: "flannel", Short: "The network between hosts that flannel's daemon makes", Routed: true},
}

// The IPAM plugins of networks.
const files, dhcp = "host-local", "dhcp"

// Keys and flags that are called as plugins are.
const bridgeWord, vlanWord = "bridge", "vlan"

// row returns the plugin of a kind.
func row(kind string) *pkgplugin.Descriptor { return known.Plugins.Find(kind) }

// isRoutedAlone reports whether the host is the gateway of each container for itself, over no bridge.
func isRoutedAlone(kind string) bool {
	f := row(kind).Facts(nil)
	return f.IsGateway && f.Bridge == ""
}

// isForOne reports whether one container at a time can be on a network of the kind.
func (k Kind) isForOne() bool { return row(k.Name).Reads("device") || row(k.Name).Reads("vlanId") }

// plugins returns the network's chain.
func (m *maker) plugins() ([]*conf.Object, error) {
	main, err := m.mainPlugin()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == m.Kind })
	if i < 0 {
		return nil, Wrongf("there is no kind of network %q", m.Kind)
	}
	if !Kinds[i].Routed {
		return []*conf.Object{main}, nil
	}
	return append([]*conf.Object{main}, m.behind()...), nil
}

func plugin(kind string) *conf.Object {
	p := conf.New()
	p.Set("type", kind)
	return p
}

func (m *maker) mainPlugin() (*conf.Object, error) {
	switch m.Kind {
	case "bridge":
		return m.bridge()
	case "macvlan", "ipvlan":
		return m.onLAN()
	case "vlan":
		return m.vlan()
	case "host-device":
		return m.hostDevice()
	case "flannel":
		return m.flannel()
	}
	p := plugin(m.Kind)
	if isRoutedAlone(m.Kind) {
		p.Set("ipMasq", new(true))
	}
	ipam, err := m.ownSubnet(isRoutedAlone(m.Kind))
	p.Set("ipam", ipam)
	return p, err
}

func (m *maker) bridge() (*conf.Object, error) {
	name, err := m.bridgeName(m.Bridge, "br-cni")
	if err != nil {
		return nil, err
	}
	p := plugin(m.Kind)
	p.Set("bridge", name)
	p.Set("isDefaultGateway", new(true))
	p.Set("ipMasq", new(true))
	p.Set("hairpinMode", new(true)) // a container reaches its own published ports
	ipam, err := m.ownSubnet(false)
	p.Set("ipam", ipam)
	if i := slices.IndexFunc(m.Subnets, func(s netip.Prefix) bool { return s.Addr().Is4() && s.Bits() < 22 }); i >= 0 {
		m.chose("containers", fmt.Sprint("at most ", link.MostPorts), "the kernel gives a bridge no more ports, and %s has more addresses: for more on this node take ptp, or a second bridge", m.Subnets[i])
	}
	return p, err
}

// bridgeName returns the name that was asked for if nobody has it, or the first free one.
func (m *maker) bridgeName(wanted, prefix string) (string, error) {
	if wanted != "" {
		if err := link.ValidateName(wanted); err != nil {
			return "", Wrongf("--bridge %s: %w", wanted, err)
		}
		if n := m.host.bridgeOf(wanted); n != nil {
			return "", fmt.Errorf("--bridge %s: it is the bridge of network %s in %s; choose another name", wanted, n.Name, n.File)
		}
		if m.host.link(wanted) != nil {
			return "", fmt.Errorf("--bridge %s: this host has a link of that name; choose another one", wanted)
		}
		return wanted, nil
	}
	for i := 0; ; i++ {
		name := fmt.Sprint(prefix, i)
		if m.host.link(name) == nil && m.host.bridgeOf(name) == nil {
			m.chose("bridge", name, "no link and no network has this name")
			return name, nil
		}
	}
}

func (m *maker) flannel() (*conf.Object, error) {
	delegate := conf.New()
	if n := m.host.bridgeOf(usualBridge(m.Kind)); n != nil {
		name, err := m.bridgeName("", "cni")
		if err != nil {
			return nil, err
		}
		delegate.Set("bridge", name)
	}
	delegate.Set("hairpinMode", new(true))
	delegate.Set("isDefaultGateway", new(true))
	p := plugin(m.Kind)
	p.Set("delegate", delegate)
	m.chose("subnet", "by flanneld", "the daemon writes this node's subnet to %s; no container starts before that", row(m.Kind).Facts(nil).Subnets.Path)
	return p, nil
}

// behind returns the plugins behind one that the host routes for: published ports, a way through the host's filter, limits.
func (m *maker) behind() (list []*conf.Object) {
	if !m.NoPorts {
		p, capabilities := plugin("portmap"), conf.New()
		capabilities.Set("portMappings", new(true))
		p.Set("capabilities", capabilities)
		list = append(list, p)
		m.chose("ports", "can be published", "each port is the runtime's to choose; --no-ports leaves portmap out")
	}
	if row(m.Kind).Facts(nil).Subnets == nil { // flanneld sets up forwarding itself
		p := plugin("firewall")
		if m.Isolated {
			p.Set("ingressPolicy", "isolated")
		}
		list = append(list, p)
		m.chose("firewall", "lets containers through", "Docker, ufw and others make hosts drop what they forward")
	}
	if m.Closed {
		p, capabilities := plugin("egress"), conf.New()
		capabilities.Set("egress", new(true))
		allow := slices.Clone(m.Allow)
		for _, s := range m.Subnets {
			if m.Domain != "" { // whose names are asked for at the gateway
				allow = append(allow, netip.AddrPortFrom(s.Masked().Addr().Next(), names.Port).String())
			}
		}
		p.Set("allow", &allow) // an empty list closes everything
		p.Set("capabilities", capabilities)
		list = append(list, p)
		m.chose("egress", "closed but for the list", "--%s says what containers may reach", allowWord)
	}
	if m.Limit > 0 {
		list = append(list, m.bandwidth())
	}
	if m.Domain != "" {
		p, capabilities := plugin("dnsname"), conf.New()
		p.Set("domainName", m.Domain)
		capabilities.Set("aliases", new(true))
		p.Set("capabilities", capabilities)
		list = append(list, p)
		m.chose("names", "in "+m.Domain, "the agent answers for them: cnictl agent --dns")
	}
	return list
}

func (m *maker) bandwidth() *conf.Object {
	burst := min(max(m.Limit/10, 1_000_000), 30_000_000_000) // what passes in 0.1 s; a packet has some 12,000 bits
	p, capabilities := plugin("bandwidth"), conf.New()
	for _, way := range []string{"ingress", "egress"} {
		p.Set(way+"Rate", m.Limit)
		p.Set(way+"Burst", burst)
	}
	capabilities.Set("bandwidth", new(true))
	p.Set("capabilities", capabilities)
	m.chose("burst", fmt.Sprint(burst, " bits"), "what may pass at once: 0.1 seconds of the limit")
	return p
}
