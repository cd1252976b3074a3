// Package plugins is the table of all plugins. A new one is a folder and a row.
package plugins

import (
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/dhcp"
	"github.com/cnibox/cnibox/plugins/ipam/hostlocal"
	"github.com/cnibox/cnibox/plugins/ipam/static"
	"github.com/cnibox/cnibox/plugins/main/bridge"
	"github.com/cnibox/cnibox/plugins/main/contivk8s"
	"github.com/cnibox/cnibox/plugins/main/dummy"
	"github.com/cnibox/cnibox/plugins/main/hostdevice"
	"github.com/cnibox/cnibox/plugins/main/ipvlan"
	"github.com/cnibox/cnibox/plugins/main/loopback"
	"github.com/cnibox/cnibox/plugins/main/macvlan"
	"github.com/cnibox/cnibox/plugins/main/ptp"
	"github.com/cnibox/cnibox/plugins/main/tap"
	"github.com/cnibox/cnibox/plugins/main/vlan"
	"github.com/cnibox/cnibox/plugins/meta/bandwidth"
	"github.com/cnibox/cnibox/plugins/meta/chain"
	"github.com/cnibox/cnibox/plugins/meta/dnsname"
	"github.com/cnibox/cnibox/plugins/meta/egress"
	"github.com/cnibox/cnibox/plugins/meta/firewall"
	"github.com/cnibox/cnibox/plugins/meta/flannel"
	"github.com/cnibox/cnibox/plugins/meta/portmap"
	"github.com/cnibox/cnibox/plugins/meta/sbr"
	"github.com/cnibox/cnibox/plugins/meta/tuning"
	"github.com/cnibox/cnibox/plugins/meta/vrf"
)

// All are the plugins of cnibox.
var All = plugin.Table{
	{Name: "bridge", Kind: plugin.Main, Summary: "connect the container to a bridge, which can be its gateway", Plugin: bridge.Plugin{}},
	{Name: "dummy", Kind: plugin.Main, Summary: "give the container a link with addresses that leads nowhere", Plugin: dummy.Plugin{}},
	{Name: "host-device", Kind: plugin.Main, Summary: "give the container a device of the host", Plugin: hostdevice.Plugin{}},
	{Name: "ipvlan", Kind: plugin.Main, Summary: "give the container IP addresses of its own behind the MAC address of another link", Plugin: ipvlan.Plugin{}},
	{Name: "macvlan", Kind: plugin.Main, Summary: "give the container a MAC address of its own on the segment of another link", Plugin: macvlan.Plugin{}},
	{Name: "vlan", Kind: plugin.Main, Summary: "put the container into an 802.1Q VLAN of another link", Plugin: vlan.Plugin{}},
	{Name: "loopback", Kind: plugin.Main, Summary: "set the container's lo up", Plugin: loopback.Plugin{}, ChecksWithoutResult: true},
	{Name: "ptp", Kind: plugin.Main, Summary: "connect the container to the host alone, which routes for it", Plugin: ptp.Plugin{}},
	{Name: "tap", Kind: plugin.Main, Summary: "give the container a tap link, for a virtual machine in it", Plugin: tap.Plugin{}},
	{Name: "contivk8s", Kind: plugin.Main, Summary: "have contiv's daemon, or cnictl's agent, attach the container", Plugin: contivk8s.Plugin{}, Borrows: true},
	{Name: "flannel", Kind: plugin.Main, Summary: "connect the container to flannel's network, by another main plugin", Plugin: flannel.Plugin{}},
	{Name: "host-local", Kind: plugin.IPAM, Summary: "hand out addresses from ranges, kept in files on this node", Plugin: hostlocal.Plugin{}, ChecksWithoutResult: true, AddressesUniqueToNode: true},
	{Name: "dhcp", Kind: plugin.IPAM, Summary: "get addresses from DHCP servers, through a daemon that keeps the leases", Plugin: dhcp.Plugin{}, ChecksWithoutResult: true, NeedsLink: true, ReleasesThroughLink: true},
	{Name: "static", Kind: plugin.IPAM, Summary: "hand out the addresses that the configuration names", Plugin: static.Plugin{}},
	{Name: "tuning", Kind: plugin.Meta, Summary: "set sysctls, MTU, MAC address, queue length and flags of the interface", Plugin: tuning.Plugin{}, Chained: true},
	{Name: "portmap", Kind: plugin.Meta, Summary: "publish ports of the container on the host", Plugin: portmap.Plugin{}, Chained: true},
	{Name: "firewall", Kind: plugin.Meta, Summary: "let the container's packets pass the host's firewall, and keep bridges apart", Plugin: firewall.Plugin{}, Oldest: "0.4.0", Chained: true},
	{Name: "egress", Kind: plugin.Meta, Summary: "say what the container may reach, and close all else", Plugin: egress.Plugin{}, Oldest: "0.3.0", Chained: true},
	{Name: "bandwidth", Kind: plugin.Meta, Summary: "limit what the container receives and sends a second", Plugin: bandwidth.Plugin{}, Oldest: "0.3.0", Chained: true},
	{Name: "sbr", Kind: plugin.Meta, Summary: "route packets by the address that they come from", Plugin: sbr.Plugin{}, Chained: true},
	{Name: "vrf", Kind: plugin.Meta, Summary: "put the interface into a VRF, which has routes of its own", Plugin: vrf.Plugin{}, Oldest: "0.3.1", Chained: true},
	{Name: "dnsname", Kind: plugin.Meta, Summary: "give the container a name that others on its networks find it by", Plugin: dnsname.Plugin{}, Chained: true},
	{Name: "chain", Kind: plugin.Meta, Summary: "run a list of plugins in one process", Plugin: chain.Plugin{}, ChecksWithoutResult: true},
}
