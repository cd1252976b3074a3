package newnet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
)

// onLAN makes a macvlan or ipvlan on a link of the host.
func (m *maker) onLAN() (*conf.Object, error) {
	master, err := m.master()
	if err != nil {
		return nil, err
	}
	switch {
	case master.WiFi && !row(m.Kind).Facts(nil).SharesMAC:
		return nil, fmt.Errorf("%s is Wi-Fi: its access point takes frames only from the one MAC address that has joined, and each macvlan has its own; make an ipvlan: cnictl new ipvlan", master.Name)
	case m.DHCP && row(m.Kind).Facts(nil).SharesMAC:
		return nil, Wrongf("--dhcp does not work with ipvlan: all its links have one MAC address, and DHCP servers give one address to it; say --range, or make a macvlan")
	case master.Master:
		return nil, fmt.Errorf("--master %s: it is a port of a bridge or a bond; take that instead", master.Name)
	}
	ipam, err := m.lanAddresses(master)
	if err != nil {
		return nil, err
	}
	p := plugin(m.Kind)
	p.Set("master", master.Name)
	p.Set("ipam", ipam)
	m.chose("note", "the host itself", "can't reach its own %s containers, nor they it: the kernel keeps them apart; others on the LAN can", m.Kind)
	return p, nil
}

// master returns the link that was asked for, or that of the default route.
func (m *maker) master() (*Link, error) {
	if m.Master == "" {
		if m.host.Uplink == "" {
			return nil, Wrongf("--master is missing: this host has no default route whose link could be taken; it has %s", m.linkNames())
		}
		m.chose("master", m.host.Uplink, "the default route's")
	}
	name := cmp.Or(m.Master, m.host.Uplink)
	l := m.host.link(name)
	if l == nil || name == "lo" {
		return nil, Wrongf("--master %s: there is no such link for it; this host has %s", name, m.linkNames())
	}
	if !l.Up {
		m.chose("note", name, "is down: no container can start before it is up")
	}
	return l, nil
}

// linkNames returns the links that a network can be on.
func (m *maker) linkNames() string {
	var names []string
	for _, l := range m.host.Links {
		if l.Name != "lo" && !l.Master && !strings.HasPrefix(l.Name, "veth") {
			names = append(names, l.Name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (m *maker) vlan() (*conf.Object, error) {
	master, err := m.master()
	if err != nil {
		return nil, err
	}
	if m.VLAN < 1 || m.VLAN > 4094 {
		return nil, Wrongf("--vlan %d: say the number of the VLAN, from 1 to 4094, as the switch has it", m.VLAN)
	}
	for _, l := range m.host.Links {
		if l.VLAN == m.VLAN && l.Parent == master.Name {
			return nil, fmt.Errorf("--vlan %d: %s is this VLAN of %s on the host, and there can be one only; put containers on it: cnictl new macvlan --master %s", m.VLAN, l.Name, master.Name, l.Name)
		}
	}
	for _, n := range m.host.Networks {
		for _, v := range n.VLANs {
			if v == fmt.Sprint(master.Name, " ", m.VLAN) {
				return nil, fmt.Errorf("--vlan %d: network %s in %s has this VLAN of %s, and one container at a time can; choose another one", m.VLAN, n.Name, n.File, master.Name)
			}
		}
	}
	if m.Subnets == nil && !m.DHCP {
		return nil, Wrongf("which addresses VLAN %d has can't be seen here: say --subnet (and --range, for a part of it), or --dhcp", m.VLAN)
	}
	ipam, err := m.lanAddresses(nil)
	if err != nil {
		return nil, err
	}
	p := plugin(m.Kind)
	p.Set("master", master.Name)
	p.Set("vlanId", m.VLAN)
	p.Set("ipam", ipam)
	m.chose("note", "one container", "can be in it at a time; for more, make a VLAN link on the host and a macvlan network on that")
	return p, nil
}

func (m *maker) hostDevice() (*conf.Object, error) {
	l := m.host.link(m.Master)
	switch {
	case m.Master == "":
		return nil, Wrongf("--device is missing: say which of %s the container gets", m.spareLinks())
	case l == nil || l.Name == "lo":
		return nil, Wrongf("--device %s: there is no such link for it; this host has %s", m.Master, m.linkNames())
	case l.Name == m.host.Uplink:
		return nil, fmt.Errorf("--device %s: it has the default route, so the host would lose its network; take another one: %s", l.Name, m.spareLinks())
	case len(l.Addresses) > 0:
		return nil, fmt.Errorf("--device %s: the host uses it with the address %s; take another one: %s", l.Name, l.Addresses[0], m.spareLinks())
	case l.Master:
		return nil, fmt.Errorf("--device %s: it is a port of a bridge or a bond; take another one: %s", l.Name, m.spareLinks())
	}
	p := plugin(m.Kind)
	p.Set("device", l.Name)
	m.chose("note", "one container", "can have %s at a time; meanwhile the host has it not", l.Name)
	if m.Subnets == nil && !m.DHCP {
		m.chose("addresses", "none", "the container sees to that; or say --subnet, or --dhcp")
		return p, nil
	}
	ipam, err := m.lanAddresses(nil)
	p.Set("ipam", ipam)
	return p, err
}

// spareLinks returns the network cards that the host does not use.
func (m *maker) spareLinks() string {
	var names []string
	for _, l := range m.host.Links {
		if l.Card && !l.Master && len(l.Addresses) == 0 && l.Name != m.host.Uplink {
			names = append(names, l.Name)
		}
	}
	if names == nil {
		return "the network cards (this host uses all that it has)"
	}
	return strings.Join(names, ", ")
}
