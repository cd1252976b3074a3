package attach

import (
	"fmt"
	"math"
	"net"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Config is what the configuration of a plugin says that makes one link.
type Config struct {
	IPAM string    // the IPAM plugin; "" is layer 2 only
	DNS  types.DNS // in place of IPAM's, if it has a domain or any list: an empty one is one
	MTU  int       // bytes; 0 is the kernel's default
	MAC  net.HardwareAddr

	Gateway      bool // an address without a gateway gets the first of its network, if it has one
	DefaultRoute bool // each family with a gateway gets a default route
	OwnDNS       bool // DNS counts even if it is empty, as with the reference plugins
	Segment      bool // the link is on a segment with hosts that are not this node's
	DAD          bool // look for other users of an IPv6 address before it is used
	AcceptRA     bool // take IPv6 addresses and routes from routers, besides those of IPAM
	Down         bool // leave the link down
}

// Locate reads what DEL and GC need.
func Locate(o *conf.Object) *Config {
	c := &Config{}
	o.Object("ipam").String("type", &c.IPAM)
	return c
}

// Parse reads the keys that all plugins have, for ADD, CHECK and STATUS.
func Parse(o *conf.Object) *Config {
	c := Locate(o)
	c.Complete(o)
	return c
}

// Complete reads what ADD, CHECK and STATUS need besides.
func (c *Config) Complete(o *conf.Object) {
	c.DNS = result.ParseDNS(o.Object("dns"))
	o.Bool("enabledad", &c.DAD)
	o.Bool("acceptRA", &c.AcceptRA)
}

// replacesDNS reports whether the network's DNS settings count, and not IPAM's.
func (c *Config) replacesDNS() bool {
	d := c.DNS
	return c.OwnDNS || d.Domain != "" || d.Nameservers != nil || d.Search != nil || d.Options != nil
}

// MinMTU is the least that IPv4 allows (RFC 791), in bytes.
const MinMTU = 68

// ReadMTU reads the key "mtu". Below 1 it is not set.
func (c *Config) ReadMTU(o *conf.Object) {
	o.Int("mtu", &c.MTU)
	if c.MTU = max(c.MTU, 0); c.MTU != 0 && (c.MTU < MinMTU || c.MTU > math.MaxUint16) {
		o.Fail("mtu", fmt.Sprintf("a number of bytes from %d to %d", MinMTU, math.MaxUint16), strconv.Itoa(c.MTU))
	}
}

// ReadMACKey reads the key "mac". It is called before ReadMAC, and what that finds counts more.
func (c *Config) ReadMACKey(o *conf.Object) {
	text := ""
	if o.String("mac", &text); text == "" {
		return
	}
	var err error
	if c.MAC, err = ParseMAC(text); err != nil {
		o.Fail("mac", "a MAC address that one interface can have, such as 02:00:00:12:34:56", strconv.Quote(text))
	}
}

// ReadMAC takes the address of the container's link from the last of these that gives one: CNI_ARGS, args.cni.mac if it counts,
// and runtimeConfig.mac.
func (c *Config) ReadMAC(r *plugin.Request) error {
	args, err := plugin.Arguments(r.Args, "MAC")
	if err != nil {
		return err
	}
	text := args["MAC"]
	r.Config.Object("args").Object("cni").String("mac", &text)
	r.Config.Object("runtimeConfig").String("mac", &text)
	if err := r.Config.Err(); err != nil || text == "" {
		return err
	}
	if c.MAC, err = ParseMAC(text); err != nil {
		return plugin.ConfigError("correct the MAC address that was asked for", "%w", err)
	}
	return nil
}
