package plugin

import (
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
)

// Described is a plugin that says what is true of it, for programs that look at a node or a configuration from outside. Anything that it does not
// say is not so.
type Described interface {
	// Facts returns what is true with a configuration: the plugin's object or, of an IPAM plugin, the object "ipam".
	Facts(config *conf.Object) Facts
}

// Facts are what is true of a plugin with a configuration.
type Facts struct {
	// Of the container's interface.
	MakesInterface  bool // whatever plugins stand before it in the list
	HasHostEnd      bool // it is one end of a veth pair, and the host has the other
	SharesMAC       bool // with its master: it is nothing without addresses, and no DHCP server tells it from others
	MTUWithinMaster bool // the kernel refuses one that is above its master's
	LeadsNowhere    bool // others may have the same addresses
	AnyGateway      bool // it reaches a gateway that is in none of its networks, or needs none

	// Of the host.
	Bridge        string    // the bridge that the host end is a port of, "" if it is of none
	GatewayLink   string    // what has the gateways' addresses: Bridge, or a link of its own for a VLAN
	IsGateway     bool      // the host is the containers' gateway
	RouteProtocol int       // the mark of its routes, 0 if they have none of their own
	Kernel        []Feature // what the kernel has to have
	Dirs          []string  // where it keeps what it needs later, unless it is told otherwise

	// Its services for what others have made.
	PublishesPorts bool
	OpensFirewall  bool // the host's packet filter lets the containers' packets pass
	ClosesEgress   bool // what the container sends elsewhere than its lists have it is dropped
	RoutesBySource bool // answers leave as the questions came

	NamesContainers bool // the agent's resolver has to answer for it

	LeasesInFiles bool // host-local's, also if it calls that
	RenewsInside  bool // addresses are asked for again from inside of the container

	// Whom it calls besides the plugin in "ipam".
	PluginsKey   string // the key with the list of them
	DelegateKey  string // the key with the configuration of one, which it completes
	DelegateType string // the type of that unless the configuration has one
	IPAMType     string // so for "ipam", which it completes then, too

	// The things that have to be on the host besides it.
	Daemon  *Daemon
	Subnets *SubnetFile
}

// Daemon is what a plugin asks, in the same file as the plugin.
type Daemon struct {
	Socket        string   // where it listens
	Arguments     []string // that start it
	Unit          string   // systemd's unit that starts it, "" if it would listen elsewhere
	ReferenceUnit string   // so for the reference plugin
}

// SubnetFile is where another program writes what a node has of a network.
type SubnetFile struct {
	Path  string
	Units []string // systemd's units of that program
	Read  func() (Subnets, error)
}

// Subnets are this node's, and the MTU of the way to other nodes; 0 is not known.
type Subnets struct {
	Own []netip.Prefix
	MTU int
}

// Feature is something that a kernel may lack.
type Feature struct {
	Name   string
	Module string       // that has it, "" if it is never in one
	Probe  netlink.Link // a link that can be made only with it
	Unused bool         // the configuration does without
}

// LinksLike is the feature that a kernel can make links of a kind.
func LinksLike(probe netlink.Link) Feature {
	return Feature{Name: "links of type " + probe.Type(), Module: linkModule(probe.Type()), Probe: probe}
}

// Facts returns what is true of the plugin with a configuration, nil for one that has no keys. Of no plugin nothing is.
func (d *Descriptor) Facts(config *conf.Object) Facts {
	if config == nil {
		config = conf.New()
	}
	if d != nil {
		if p, is := d.Plugin.(Described); is {
			return p.Facts(config.Lenient())
		}
	}
	return Facts{}
}

// Keys returns the keys that the plugin reads, and whether they are known.
func (d *Descriptor) Keys() (set keys.Set, known bool) {
	if d != nil {
		if p, is := d.Plugin.(Configured); is {
			return p.Keys(), true
		}
	}
	return keys.Set{}, false
}

// Reads reports whether the plugin reads a key of its object.
func (d *Descriptor) Reads(key string) bool {
	set, _ := d.Keys()
	return set.Own.Find(key) != nil
}

// AsksFor reports whether the plugin reads what a runtime gives for a capability.
func (d *Descriptor) AsksFor(capability string) bool {
	set, _ := d.Keys()
	return set.Runtime.Find(capability) != nil
}
