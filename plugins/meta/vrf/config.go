package vrf

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the vrf plugin reads of a configuration; docs/vrf.md explains each key.
type config struct {
	name  string
	table int // 0 is any
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := locate(o)
	if c.table < 0 || c.table > math.MaxUint32 || c.table >= unix.RT_TABLE_DEFAULT && c.table <= unix.RT_TABLE_LOCAL {
		const want = "the number of a routing table, from 1 to %d, but 253 to 255, which the kernel has a use for"
		o.Fail("table", fmt.Sprintf(want, uint32(math.MaxUint32)), strconv.Itoa(c.table))
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	if !link.IsName(c.name) {
		return nil, plugin.ConfigError(`name the VRF in "vrfname", in 1 to 15 characters`,
			"configuration is expected to have a valid vrf name: %q is none", c.name)
	}
	return c, nil
}

// locate reads what DEL needs.
func locate(o *conf.Object) *config {
	c := &config{}
	o.String("vrfname", &c.name)
	o.Int("table", &c.table)
	return c
}

// ownMAC returns the MAC address of a VRF that this plugin has made, which DEL knows it by. No packet has it.
func ownMAC(name string) net.HardwareAddr {
	mac := plugin.MAC("vrf", name)
	return mac[:]
}

// ownTable returns the number of the table that a VRF gets if the configuration names none. It is made from the name, so that two
// that are made at the same time get different ones, and far from the numbers that people choose.
func ownTable(name string) int {
	const first = 1 << 29
	mac := ownMAC(name)
	return first | int(binary.BigEndian.Uint32(mac[2:])%first)
}
