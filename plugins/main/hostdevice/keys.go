package hostdevice

import (
	"slices"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys(), Runtime: runtimeKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, _, err := readConfig(r)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{MakesInterface: true}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		keys.Table{
			{Name: "device", Type: keys.String, Default: "none",
				Doc: "The device's name on the host."},
			{Name: "hwaddr", Type: keys.String, Form: keys.Hardware, Default: "none",
				Doc: "Its MAC address. The first link that has it is taken."},
			{Name: "kernelpath", Type: keys.String, Form: keys.Device, Default: "none",
				Doc: "Its directory below `/sys/devices`."},
			{Name: "pciBusID", Type: keys.String, Default: "none",
				Doc: "Its PCI address, such as `0000:01:00.0`."},
			{Name: "DPDKMode", Type: keys.Bool, Default: "`false`",
				Doc: "Leave the device where it is: a program in the container drives it. For a device with a PCI address the driver decides: `vfio-pci`, `uio_pci_generic` and `igb_uio` leave a device to programs."},
		},
		attach.AddressKeys("Look for other users of an IPv6 address (duplicate address detection) before it is used: 1 to 2 seconds. Without it that is done unless IPAM hands out each address once.",
			"Let the container take IPv6 addresses and routes from routers. Without `ipam` they are never refused.", keys.Ours),
		keys.Table{
			attach.DNSKey("none", "DNS settings for the result, in place of IPAM's. Left out of it without `ipam`."),
			attach.IPAMKey(false, "`type` names the IPAM plugin; the other keys are for it."),
		},
	)
}

// runtimeKeys are those that the runtime fills in.
func runtimeKeys() keys.Table {
	return keys.Table{
		{Name: "deviceID", Type: keys.String,
			Doc: "The device that a device plugin of the orchestrator has assigned: its PCI address, or its name in `/sys/bus/auxiliary/devices`."},
	}
}
