package bridge

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// gatewayLink names the link that has the gateways' addresses in the place of the bridge, "" if the bridge has them. The name is the
// reference plugin's.
func (c *config) gatewayLink() string {
	if c.vlan == 0 || !c.Gateway || c.IPAM == "" {
		return ""
	}
	return c.name + "." + strconv.Itoa(c.vlan)
}

// ensureGatewayLink returns the link that is the gateway of a VLAN, up, made if it is not there: one end of a veth pair, whose other
// end is a port of the bridge in that VLAN. All containers of the VLAN share it, and it stays. A link of another kind is somebody's
// own, such as a VLAN device on the bridge, and is taken as it is.
func ensureGatewayLink(h *netlink.Handle, c *config, bridge netlink.Link) (netlink.Link, error) {
	name := c.gatewayLink()
	l, err := h.LinkByName(name)
	if link.IsNotFound(err) {
		l, err = createGatewayLink(h, name, bridge.Attrs().MTU)
	}
	if err != nil || l.Type() != "veth" {
		return l, err
	}
	port, err := h.LinkByIndex(l.Attrs().ParentIndex)
	if err != nil || l.Attrs().NetNsID >= 0 || port.Attrs().MasterIndex != 0 && port.Attrs().MasterIndex != bridge.Attrs().Index {
		return nil, plugin.Errorf("remove that link, which is made again, or name another bridge", "its other end is no port of bridge %s", c.name)
	}
	if port.Attrs().MasterIndex != 0 && port.Attrs().OperState == netlink.OperUp {
		return l, nil
	}
	return l, connectGateway(h, c, bridge, l, port)
}

// createGatewayLink makes the pair, both ends down; another ADD may do so at the same time.
func createGatewayLink(h *netlink.Handle, name string, mtu int) (netlink.Link, error) {
	attrs := netlink.LinkAttrs{Name: name, HardwareAddr: link.RandomMAC(), MTU: mtu, TxQLen: -1, NumTxQueues: 1, NumRxQueues: 1}
	other := link.RandomMAC()
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("veth%x", []byte(other[2:])), PeerHardwareAddr: other}
	if err := h.LinkAdd(pair); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return h.LinkByName(name)
}

// connectGateway makes the other end of the gateway's link a port in the VLAN, and sets both ends up, the gateway's last: so what is up
// is whole. Another ADD may do the same at the same time.
func connectGateway(h *netlink.Handle, c *config, bridge, gateway, port netlink.Link) error {
	err := link.SetUpAs(port.Attrs().Index, "port of "+gateway.Attrs().Name, bridge.Attrs().Index)
	if err == nil {
		err = setVLANs(h, c, bridge, port, nil)
	}
	if err == nil {
		trustNoRouter(c, gateway.Attrs().Name)
		err = h.LinkSetUp(gateway)
	}
	if err == nil {
		_, err = link.WaitUp(h, port.Attrs().Name, portTime)
	}
	if err != nil && port.Attrs().MasterIndex == 0 {
		err = errors.Join(explainFull(c.name, err), link.Delete(h, gateway.Attrs().Index))
	}
	return err
}
