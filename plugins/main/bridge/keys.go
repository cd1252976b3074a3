package bridge

import (
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys(), Runtime: attach.AskedMAC(), Args: attach.AskedMAC()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := parse(r)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(o *conf.Object) plugin.Facts {
	c := locate(&plugin.Request{Config: o})
	o.Int("vlan", &c.vlan)
	f := plugin.Facts{MakesInterface: true, HasHostEnd: true, IsGateway: c.Gateway, Bridge: c.name, GatewayLink: c.name}
	if c.vlan != 0 {
		f.GatewayLink = vlanLink(c.name, c.vlan)
	}
	f.Kernel = []plugin.Feature{
		plugin.LinksLike(&netlink.Bridge{}), plugin.LinksLike(&netlink.Veth{PeerName: "peer"}),
		{Name: "bridges that filter VLANs", Probe: &netlink.Bridge{VlanFiltering: new(true)}, Unused: !o.Has("vlan") && !o.Has("vlanTrunk")},
	}
	return f
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		keys.Table{
			{Name: "bridge", Type: keys.String, Form: keys.Interface, Default: "`cni0`",
				Doc: "The bridge's name. It is made if it is not there, with a MAC address that stays."},
			{Name: "isGateway", Type: keys.Bool, Default: "`false`",
				Doc: "Give the bridge the gateway's addresses (IPAM's, or the first of the subnet), and let the host forward packets."},
			{Name: "isDefaultGateway", Type: keys.Bool, Default: "`false`",
				Doc: "As `isGateway`, and give the container a default route for each family that has none."},
			{Name: "forceAddress", Type: keys.Bool, Default: "`false`",
				Doc: "Take conflicting addresses from the bridge. Without it a conflict is an error."},
		},
		attach.MasqueradeKeys(),
		keys.Table{
			attach.MTUKey("the kernel's", "MTU of both ends of the veth pair, and of the bridge when it is made here."),
			{Name: "hairpinMode", Type: keys.Bool, Default: "`false`",
				Doc: "Let the port send packets back where they came from. A container needs it to reach its own published port on nodes where netfilter looks into bridges (`net.bridge.bridge-nf-call-iptables = 1`, usual with Kubernetes). Not together with `promiscMode`."},
			{Name: "promiscMode", Type: keys.Bool, Default: "`false`",
				Doc: "Make the bridge promiscuous. It stays so."},
			{Name: "portIsolation", Type: keys.Bool, Since: "1.7.0", Default: "`false`",
				Doc: "Keep the port from exchanging packets with other isolated ports."},
			{Name: "macspoofchk", Type: keys.Bool, Since: "1.1.0", Default: "`false`",
				Doc: "Drop what the container sends from any MAC address but its own. Needs nf_tables for bridges (`CONFIG_NF_TABLES_BRIDGE`). See [spoof check](#spoof-check)."},
			{Name: "vlan", Type: keys.Int, Range: &keys.Range{Max: lastVLAN}, Default: "`0`",
				Doc: "The VLAN of the container's port. Its packets pass the port without a tag. 0 is none. See [VLANs](#vlans)."},
			{Name: "vlanTrunk", Type: keys.Objects, Since: "1.3.0", Default: "none", Keys: trunkKeys(),
				Doc: "VLANs that the container uses with tags: each entry has a `minID` and a `maxID`, an `id`, or both. Packets without a tag are in `vlan`, or else in VLAN 1."},
			{Name: "preserveDefaultVlan", Type: keys.Bool, Since: "1.3.0", Default: "`false`",
				Doc: "With `vlan` or `vlanTrunk`, leave the port in the bridge's default VLAN (`vlan_default_pvid`, 1) too."},
		},
		attach.AddressKeys(
			"Look for other users of an IPv6 address (duplicate address detection) before it is used: 1 to 2 seconds. IPAM hands out each address once, so this is for segments shared with others.",
			"Let the container take IPv6 addresses and routes from routers, which another container of the bridge can pretend to be. Without `ipam` they are never refused.", "1.1.0"),
		keys.Table{
			{Name: "disableContainerInterface", Type: keys.Bool, Since: "1.4.0", Default: "`false`",
				Doc: "Leave the container's end down. Not together with `ipam`."},
			attach.DNSKey("IPAM's", "DNS settings for the result. A `domain` or any list, an empty one too, takes the place of all of IPAM's."),
			attach.IPAMKey(false, "`type` names the IPAM plugin; the other keys are for it. Without `ipam` the network is layer 2 only."),
		},
	)
}

// trunkKeys are those of an entry of "vlanTrunk".
func trunkKeys() keys.Table {
	return keys.Table{
		{Name: "minID", Type: keys.Int, Range: &keys.Range{Min: 1, Max: lastVLAN},
			Doc: "The first VLAN of a range. With `maxID`."},
		{Name: "maxID", Type: keys.Int, Range: &keys.Range{Min: 1, Max: lastVLAN},
			Doc: "The last VLAN of a range. With `minID`."},
		{Name: "id", Type: keys.Int, Range: &keys.Range{Min: 1, Max: lastVLAN},
			Doc: "One VLAN."},
	}
}
