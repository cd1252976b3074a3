package tap

import (
	"math"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the tap plugin reads of a configuration; docs/plugins/tap.md explains each key.
type config struct {
	attach.Config
	multiQueue   bool
	owner, group *int // nil is anybody
	label        string
	bridge       string
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS on this host.
func parse(r *plugin.Request) (*config, error) {
	c, err := readConfig(r)
	if err == nil && c.label != "" && !hasSELinux() {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "selinuxContext: this host has no SELinux", "remove the key for this host, or enable SELinux")
	}
	return c, err
}

func readConfig(r *plugin.Request) (*config, error) {
	c := &config{Config: *attach.Parse(r.Config)}
	o := r.Config
	c.OwnDNS = true
	c.ReadMTU(o)
	c.ReadMACKey(o)
	o.Bool("multiQueue", &c.multiQueue)
	c.owner, c.group = readID(o, "owner"), readID(o, "group")
	o.String("selinuxContext", &c.label)
	o.String("bridge", &c.bridge)
	if err := c.ReadMAC(r); err != nil {
		return nil, err
	}
	return c, o.Err()
}

// readID reads the number of a user or a group. The highest stands for none in the kernel.
func readID(o *conf.Object, key string) (id *int) {
	o.OptionalInt(key, &id)
	if id != nil && (*id < 0 || int64(*id) >= math.MaxUint32) {
		o.Fail(key, "a number from 0 to 4294967294", strconv.Itoa(*id))
	}
	return id
}

// hasSELinux reports whether SELinux is there, by the files in which it shows itself.
func hasSELinux() bool {
	var fs unix.Statfs_t
	return unix.Statfs("/sys/fs/selinux", &fs) == nil && uint32(fs.Type) == unix.SELINUX_MAGIC
}

// findBridge returns the bridge of the container that the tap must be a port of, nil for none.
func (c *config) findBridge(r *plugin.Request) (netlink.Link, error) {
	if c.bridge == "" {
		return nil, nil
	}
	inside, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	l, err := inside.LinkByName(c.bridge)
	switch {
	case link.IsNotFound(err):
		return nil, plugin.ConfigError("make it there before, or name another one", "bridge: there is no link %q in the container", c.bridge)
	case err != nil:
		return nil, err
	case l.Type() != "bridge":
		return nil, plugin.ConfigError("name a bridge of the container", "bridge: %s of the container is not a bridge but %s", c.bridge, l.Type())
	}
	return l, nil
}
