package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/sandbox"
)

// ifName is the interface of the containers.
const ifName = "eth0"

// removalLimit is how long the DEL of a container may take.
const removalLimit = 2 * time.Minute

// Container is a namespace that is attached to the network for the probe.
type Container struct {
	Name      string       `json:"name"`
	ID        string       `json:"containerID"`
	Addresses []netip.Addr `json:"addresses"`
	Gateways  []netip.Addr `json:"gateways,omitempty"`
	Servers   []netip.Addr `json:"nameServers,omitempty"`
	MTU       int          `json:"mtu"`
	HostEnd   string       `json:"hostEnd,omitempty"`

	port      int          // of the host, that is published for it; 0: none
	link      netlink.Link // its interface
	namespace netns.NsHandle
	rt        *libcni.RuntimeConf // nil: nothing was made yet
	result    *types100.Result
}

func newContainer(name, id string, port int) *Container {
	return &Container{Name: name, ID: id + "-" + name, port: port}
}

// add makes the container, attaches it and has it answer.
func (c *Container) add(ctx context.Context, node network.Node, list *libcni.NetworkConfigList) error {
	namespace, path, err := sandbox.Unnamed()
	if err != nil {
		return err
	}
	c.namespace = namespace
	c.rt = &libcni.RuntimeConf{ContainerID: c.ID, NetNS: path, IfName: ifName, CapabilityArgs: c.capabilities()}
	added, err := node.CNI().AddNetworkList(ctx, list, c.rt)
	if err != nil {
		return fmt.Errorf("attach container %s of the probe: %w", c.Name, errors.Join(stopped(ctx), err))
	}
	result, err := types100.NewResultFromResult(added)
	if err != nil {
		return fmt.Errorf("read the result of network %s: %w", list.Name, err)
	}
	c.result = result
	for _, ip := range result.IPs {
		c.Addresses = appendAddress(c.Addresses, ip.Address.IP)
		c.Gateways = appendAddress(c.Gateways, ip.Gateway)
	}
	if c.Addresses == nil {
		return fmt.Errorf("network %s gives no addresses: there is nothing to try on it", list.Name)
	}
	for _, server := range result.DNS.Nameservers {
		c.Servers = appendAddress(c.Servers, net.ParseIP(server))
	}
	err = c.inside(func() (err error) {
		c.link, err = netlink.LinkByName(ifName)
		return err
	})
	if err != nil {
		return fmt.Errorf("look up %s of container %s: %w", ifName, c.Name, err)
	}
	c.MTU = c.link.Attrs().MTU
	if end := c.hostEnd(); end != nil {
		c.HostEnd = end.Attrs().Name
	}
	return c.serve()
}

func (c *Container) capabilities() map[string]any {
	if c.port == 0 {
		return nil
	}
	var ports []network.Port
	for _, protocol := range []string{"tcp", "udp"} {
		ports = append(ports, network.Port{HostPort: c.port, ContainerPort: servedPort, Protocol: protocol})
	}
	return map[string]any{"portMappings": ports}
}

// remove takes the container away, as far as it was made.
func (c *Container) remove(node network.Node, list *libcni.NetworkConfigList) error {
	if c.rt == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removalLimit)
	defer cancel()
	err := node.Del(ctx, list, c.rt)
	if err != nil {
		err = fmt.Errorf("take container %s of the probe away (repeat with: cnictl del %s --id %s --ifname %s): %w", c.Name, list.Name, c.ID, ifName, err)
	}
	return errors.Join(err, c.namespace.Close())
}

func (c *Container) inside(f func() error) error { return sandbox.Inside(c.rt.NetNS, f) }

// address returns the container's first address of a family, or an invalid one.
func (c *Container) address(f family) netip.Addr { return first(c.Addresses, f) }

func first(addresses []netip.Addr, f family) netip.Addr {
	for _, a := range addresses {
		if f.has(a) {
			return a
		}
	}
	return netip.Addr{}
}

func appendAddress(all []netip.Addr, ip net.IP) []netip.Addr {
	if a, ok := netip.AddrFromSlice(ip); ok {
		all = append(all, a.Unmap())
	}
	return all
}

// family is IPv4 or IPv6.
type family struct {
	name     string
	header   int // bytes of the header
	loopback netip.Addr
	foreign  netip.Addr // an address that nobody has
	has      func(netip.Addr) bool
}

var families = []family{
	{"IPv4", 20, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.0"), netip.Addr.Is4},
	{"IPv6", 40, netip.IPv6Loopback(), netip.MustParseAddr("2001:db8::"), netip.Addr.Is6},
}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return families[0]
	}
	return families[1]
}
