package hostdevice

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the host-device plugin reads of a configuration; docs/host-device.md explains each key.
type config struct {
	attach.Config
	// What says which device it is. The first that is set counts.
	name       string
	mac        net.HardwareAddr
	kernelPath string
	pci        string // an address, such as 0000:01:00.0
	auxiliary  string // a device of that bus

	dpdk bool // a program drives the device, and the kernel has no link of it
}

const pciDevices, auxiliaryDevices = "/sys/bus/pci/devices", "/sys/bus/auxiliary/devices"

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	c := &config{Config: *attach.Parse(r.Config)}
	c.Segment = true
	o := r.Config
	mac, id := "", ""
	o.String("device", &c.name)
	o.String("hwaddr", &mac)
	o.String("kernelpath", &c.kernelPath)
	o.String("pciBusID", &c.pci)
	o.Bool("DPDKMode", &c.dpdk)
	o.Object("runtimeConfig").String("deviceID", &id)
	if mac != "" {
		var err error
		if c.mac, err = net.ParseMAC(mac); err != nil {
			o.Fail("hwaddr", "a MAC address, such as 02:00:00:12:34:56", mac)
		}
	}
	if c.kernelPath != "" && !strings.HasPrefix(filepath.Clean(c.kernelPath), "/sys/devices/") {
		o.Fail("kernelpath", "a path below /sys/devices", c.kernelPath)
	}
	if c.pci != "" && !isEntry(c.pci) {
		o.Fail("pciBusID", "a PCI address, such as 0000:01:00.0", c.pci)
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	if err := c.assign(id); err != nil {
		return nil, err
	}
	if !c.isSet() && !(r.Command == plugin.Status && isAssigned(o)) {
		return nil, plugin.ConfigError("name the host's device, or have the runtime assign one (capability deviceID)",
			`specify either "device", "hwaddr", "kernelpath" or "pciBusID"`)
	}
	return c, c.readDriver()
}

// isAssigned reports whether the runtime assigns devices to containers. It does so with ADD.
func isAssigned(o *conf.Object) (is bool) {
	o.Object("capabilities").Bool("deviceID", &is)
	return is
}

// isEntry reports whether a name can be that of an entry of a directory.
func isEntry(name string) bool { return name == filepath.Base(name) && name != "." && name != ".." }

// assign takes the device that the runtime has assigned to the container.
func (c *config) assign(id string) error {
	isIn := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, id))
		return err == nil && isEntry(id)
	}
	switch {
	case id == "":
	case isIn(pciDevices):
		c.pci = id
	case isIn(auxiliaryDevices):
		c.pci, c.auxiliary = "", id
	default:
		return plugin.ConfigError("the device plugin of the orchestrator assigned it: is it still on this host?",
			"runtimeConfig.deviceID: there is no %q in %s or %s", id, pciDevices, auxiliaryDevices)
	}
	return nil
}

// readDriver finds out whether the driver of a PCI device leaves it to a program.
func (c *config) readDriver() error {
	if c.pci == "" {
		return nil
	}
	driver, err := os.Readlink(filepath.Join(pciDevices, c.pci, "driver"))
	if err != nil {
		return plugin.ConfigError("see `lspci -k`: the device must be there, and bound to a driver", "PCI device %s has no driver: %v", c.pci, err)
	}
	c.dpdk = slices.Contains([]string{"vfio-pci", "uio_pci_generic", "igb_uio"}, filepath.Base(driver))
	return nil
}

// isSet reports whether the configuration says which device it is.
func (c *config) isSet() bool {
	return c.name != "" || c.mac != nil || c.kernelPath != "" || c.pci != "" || c.auxiliary != ""
}

// find looks the device up among the host's links.
func (c *config) find(h *netlink.Handle) (netlink.Link, error) {
	if c.name == "" && c.mac != nil {
		return c.findByMAC(h)
	}
	name, where := c.name, "device "+c.name
	if name == "" {
		name, where = c.nameInSysfs()
	}
	if name == "" {
		return nil, c.missing(where)
	}
	l, err := h.LinkByName(name)
	if link.IsNotFound(err) {
		return nil, c.missing(where)
	}
	return l, err
}

func (c *config) findByMAC(h *netlink.Handle) (netlink.Link, error) {
	links, err := link.List(h)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if slices.Equal(l.Attrs().HardwareAddr, c.mac) {
			return l, nil
		}
	}
	return nil, c.missing("hwaddr " + c.mac.String())
}

// nameInSysfs returns the name of the device's first link, "" if it has none on the host, and where it was looked for.
func (c *config) nameInSysfs() (name, where string) {
	dir := c.kernelPath
	switch {
	case dir != "":
	case c.pci != "":
		dir = filepath.Join(pciDevices, c.pci)
	default:
		dir = filepath.Join(auxiliaryDevices, c.auxiliary)
	}
	for _, pattern := range []string{"net/*", "virtio*/net/*"} {
		if names, err := filepath.Glob(filepath.Join(dir, pattern)); err == nil && len(names) > 0 {
			return filepath.Base(names[0]), dir
		}
	}
	return "", dir
}

// missing says that the device is not on the host, and which container has it.
func (c *config) missing(where string) error {
	remedy := "see `ip link` on the host"
	if h := c.holder(); h != nil {
		remedy = "container " + h.Key.String() + " has it: detach that first"
	}
	return types.NewError(types.ErrInvalidNetworkConfig, where+": the host has no such link", remedy)
}

// holder returns what is known of the device if a container has it, nil otherwise.
func (c *config) holder() *holding {
	list, _ := holdings()
	for _, h := range list {
		isParent := h.parent != "" && slices.Contains([]string{c.pci, c.auxiliary, filepath.Base(c.kernelPath)}, h.parent)
		if h.name == c.name || c.mac != nil && h.mac == c.mac.String() || isParent {
			return h
		}
	}
	return nil
}

// pciID returns the PCI address of the device, "" if it has none.
func (c *config) pciID(l netlink.Link) string {
	switch {
	case c.pci != "":
		return c.pci
	case l.Attrs().ParentDevBus == "pci":
		return l.Attrs().ParentDev
	}
	return ""
}
