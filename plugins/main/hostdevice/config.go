package hostdevice

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the host-device plugin reads of a configuration; docs/plugins/host-device.md explains each key.
type config struct {
	attach.Config
	// The ways to say which device it is. The first that is set counts.
	name string
	mac  net.HardwareAddr
	dir  string // its directory in sysfs

	pci  string // its PCI address, such as 0000:01:00.0, if that is configured or assigned
	dpdk bool   // a program drives the device, and the kernel has no link of it
}

const pciDevices, auxiliaryDevices = "/sys/bus/pci/devices", "/sys/bus/auxiliary/devices"

// parse reads and validates the configuration of an ADD, CHECK or STATUS, and finds the device's directory and driver.
func parse(r *plugin.Request) (*config, error) {
	c, assigned, err := readConfig(r)
	if err != nil {
		return nil, err
	}
	if err := c.findDir(assigned); err != nil {
		return nil, err
	}
	return c, c.readDriver()
}

// readConfig reads the keys, and the device that the runtime has assigned. As with the reference plugin the DNS settings are the
// network's own, whatever IPAM has, and there are none without it.
func readConfig(r *plugin.Request) (_ *config, assigned string, err error) {
	c := &config{Config: *attach.Parse(r.Config)}
	c.Segment, c.OwnDNS = true, true
	if c.IPAM == "" {
		c.DNS = types.DNS{}
	}
	o := r.Config
	mac, comes := "", false
	o.String("device", &c.name)
	o.String("hwaddr", &mac)
	o.String("kernelpath", &c.dir)
	o.String("pciBusID", &c.pci)
	o.Bool("DPDKMode", &c.dpdk)
	o.Object("runtimeConfig").String("deviceID", &assigned)
	o.Object("capabilities").Bool("deviceID", &comes)
	if mac != "" {
		if c.mac, err = net.ParseMAC(mac); err != nil {
			o.Fail("hwaddr", "a MAC address, such as 02:00:00:12:34:56", mac)
		}
	}
	if c.dir != "" && !strings.HasPrefix(filepath.Clean(c.dir), "/sys/devices/") {
		o.Fail("kernelpath", "a path below /sys/devices", c.dir)
	}
	if c.pci != "" && !isEntry(c.pci) {
		o.Fail("pciBusID", "a PCI address, such as 0000:01:00.0", c.pci)
	}
	if err := o.Err(); err != nil {
		return nil, "", err
	}
	isAssigned := assigned != "" || r.Command == plugin.Status && comes // a STATUS comes before it is
	if !c.isSet() && c.pci == "" && !isAssigned {
		return nil, "", plugin.ConfigError("name the host's device, or have the runtime assign one (capability deviceID)",
			`specify either "device", "hwaddr", "kernelpath" or "pciBusID"`)
	}
	return c, assigned, nil
}

// isEntry reports whether a name can be that of an entry of a directory.
func isEntry(name string) bool { return name == filepath.Base(name) && name != "." && name != ".." }

// findDir finds the directory of the device that the runtime has assigned to the container, or of the one that has the PCI address.
func (c *config) findDir(assigned string) error {
	dir := ""
	switch {
	case assigned == "":
	case isIn(pciDevices, assigned):
		c.pci = assigned
	case isIn(auxiliaryDevices, assigned):
		c.pci, dir = "", filepath.Join(auxiliaryDevices, assigned)
	default:
		return plugin.ConfigError("the device plugin of the orchestrator assigned it: is it still on this host?",
			"runtimeConfig.deviceID: there is no %q in %s or %s", assigned, pciDevices, auxiliaryDevices)
	}
	if c.pci != "" {
		dir = filepath.Join(pciDevices, c.pci)
	}
	c.dir = cmp.Or(c.dir, dir)
	return nil
}

// isIn reports whether a device is in a directory of sysfs.
func isIn(dir, id string) bool {
	_, err := os.Stat(filepath.Join(dir, id))
	return err == nil && isEntry(id)
}

// readDriver finds out whether the driver of a PCI device leaves it to a program.
func (c *config) readDriver() error {
	if c.pci == "" {
		return nil
	}
	driver, err := os.Readlink(filepath.Join(pciDevices, c.pci, "driver"))
	if err != nil {
		return plugin.ConfigError("see `lspci -k`: the device must be there, and bound to a driver", "PCI device %s has no driver: %w", c.pci, err)
	}
	c.dpdk = slices.Contains([]string{"vfio-pci", "uio_pci_generic", "igb_uio"}, filepath.Base(driver))
	return nil
}

// isSet reports whether the configuration says which device it is.
func (c *config) isSet() bool { return c.name != "" || c.mac != nil || c.dir != "" }

// find looks the device up among the host's links.
func (c *config) find(h *netlink.Handle) (l netlink.Link, err error) {
	where := c.dir
	switch {
	case c.name != "":
		where = "device " + c.name
		l, err = h.LinkByName(c.name)
	case c.mac != nil:
		where = "hwaddr " + c.mac.String()
		l, err = findMAC(h, c.mac)
	default:
		l, err = findBelow(h, c.dir)
	}
	if l != nil || link.IgnoreNotFound(err) != nil {
		return l, err
	}
	remedy := "see `ip link` on the host"
	if n := c.holder(); n != nil {
		remedy = "container " + n.Key.String() + " has it: detach that first"
	}
	return nil, types.NewError(types.ErrInvalidNetworkConfig, where+": the host has no such link", remedy)
}

// findMAC returns the first link that has a MAC address, nil if there is none.
func findMAC(h *netlink.Handle, mac net.HardwareAddr) (netlink.Link, error) {
	links, err := link.List(h)
	if at := slices.IndexFunc(links, func(l netlink.Link) bool { return slices.Equal(l.Attrs().HardwareAddr, mac) }); at >= 0 {
		return links[at], nil
	}
	return nil, err
}

// findBelow returns the first link of the device that has a directory in sysfs, nil if it has none on the host.
func findBelow(h *netlink.Handle, dir string) (netlink.Link, error) {
	for _, pattern := range []string{"net/*", "virtio*/net/*"} {
		if names, err := filepath.Glob(filepath.Join(dir, pattern)); err == nil && len(names) > 0 {
			return h.LinkByName(filepath.Base(names[0]))
		}
	}
	return nil, nil
}

// holder returns the note of the container that has the device, nil if none has it.
func (c *config) holder() *note {
	list, _ := notes()
	at := slices.IndexFunc(list, func(n *note) bool {
		return n.name == c.name || c.mac != nil && n.mac == c.mac.String() || n.parent != "" && n.parent == filepath.Base(c.dir)
	})
	if at < 0 {
		return nil
	}
	return list[at]
}

// pciID returns the PCI address of the device, "" if it has none.
func (c *config) pciID(l netlink.Link) string {
	if c.pci == "" && l.Attrs().ParentDevBus == "pci" {
		return l.Attrs().ParentDev
	}
	return c.pci
}
