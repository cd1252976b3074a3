package hostdevice

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// FuzzNote makes sure that a note is read as it was written.
func FuzzNote(f *testing.F) {
	f.Add("c", "eth0", "nic0", "up link\n\"", 1500, true)
	f.Add("", "\x00", "<b>", "\u2028", -1, false)
	f.Add("c", "eth0", strings.Repeat("\xff", 6), strings.Repeat("\xff", 100), 1500, true) // as the kernel allows
	f.Fuzz(func(t *testing.T, containerID, ifName, name, alias string, mtu int, up bool) {
		if !utf8.ValidString(containerID) || !utf8.ValidString(ifName) {
			return
		}
		n := note{Key: plugin.Key{Network: "n", ContainerID: containerID, IfName: ifName}, name: name, alias: alias, mtu: mtu, up: up}
		o, err := conf.Parse(n.record().JSON())
		if err != nil {
			t.Fatal(err)
		}
		if again := readNote(o); *again != n {
			t.Errorf("%s: read as %+v, was %+v", n.record().JSON(), again, n)
		}
	})
}

// TestLike makes sure which links of a container may be the device where numbers are not known.
func TestLike(t *testing.T) {
	mac := net.HardwareAddr{2, 0x45, 0, 0, 0, 1}
	virtual, card := note{name: "nic0", kind: "veth", mac: mac.String()}, note{name: "nic0", kind: hardware, mac: mac.String(), parent: "0000:01:00.0"}
	for name, c := range map[string]struct {
		note
		link netlink.Link
		want bool
	}{
		"alias":                  {virtual, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net7", Alias: "nic0"}}, true},
		"MAC address":            {virtual, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net7", HardwareAddr: mac}}, true},
		"neither":                {virtual, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Alias: "x"}}, false},
		"no MAC address":         {note{name: "nic0", kind: "veth"}, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}, false},
		"another kind":           {virtual, &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Alias: "nic0", HardwareAddr: mac}}, false},
		"lo":                     {card, &netlink.Device{LinkAttrs: netlink.LinkAttrs{Alias: "nic0", ParentDev: "0000:01:00.0", Flags: net.FlagLoopback}}, false},
		"the card":               {card, &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "net7", Alias: "x", ParentDev: "0000:01:00.0"}}, true},
		"another card":           {card, &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Alias: "nic0", HardwareAddr: mac, ParentDev: "0000:02:00.0"}}, false},
		"a link that is no card": {card, &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Alias: "nic0", HardwareAddr: mac}}, false},
	} {
		if c.isLike(c.link) != c.want {
			t.Errorf("%s: not %v", name, c.want)
		}
	}
}

// FuzzParse makes sure that no configuration leads out of the directories of devices.
func FuzzParse(f *testing.F) {
	f.Add(`{"device":"nic0","hwaddr":"02:00:00:00:00:01"}`)
	f.Add(`{"kernelpath":"/sys/devices/../..","pciBusID":"../x"}`)
	f.Add(`{"runtimeConfig":{"deviceID":".."},"DPDKMODE":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := parse(&plugin.Request{Command: plugin.Add, Config: o})
		if err != nil {
			if plugin.AsError(err).Msg == "" {
				t.Errorf("an error without a message for %q", text)
			}
			return
		}
		isLeft := c.dir != "" && !strings.HasPrefix(filepath.Clean(c.dir), "/sys/devices/") &&
			filepath.Dir(c.dir) != pciDevices && filepath.Dir(c.dir) != auxiliaryDevices
		if !c.isSet() || c.pci != "" && !isEntry(c.pci) || isLeft {
			t.Errorf("%q gives %+v", text, c)
		}
	})
}
