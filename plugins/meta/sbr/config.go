package sbr

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the sbr plugin reads of a configuration; docs/sbr.md explains each key.
type config struct {
	table    int // 0 is tables of the attachment's own
	gateways []netip.Addr
	hints    bool
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := locate(o)
	if o.Has("table") && (c.table < 1 || c.table > math.MaxUint32) {
		o.Fail("table", fmt.Sprintf("the number of a routing table, from 1 to %d", uint32(math.MaxUint32)), strconv.Itoa(c.table))
	}
	var texts []string
	o.Strings("gateways", &texts)
	for i, text := range texts {
		key := fmt.Sprintf("gateways[%d]", i)
		gateway, err := netip.ParseAddr(text)
		gateway = gateway.Unmap()
		switch {
		case err != nil || gateway.Zone() != "" || gateway.IsUnspecified() || gateway.IsMulticast():
			o.Fail(key, "the IP address of a gateway", strconv.Quote(text))
		case c.gateway(gateway).IsValid():
			o.Fail(key, "at most one IPv4 and one IPv6 address", strconv.Quote(text))
		}
		c.gateways = append(c.gateways, gateway)
	}
	o.Bool("addSourceHints", &c.hints)
	return c, o.Err()
}

// locate reads what DEL needs.
func locate(o *conf.Object) *config {
	c := &config{}
	o.Int("table", &c.table)
	return c
}

// gateway returns the configured gateway for an address's family, the zero Addr if there is none.
func (c *config) gateway(a netip.Addr) netip.Addr {
	for _, gateway := range c.gateways {
		if gateway.Is4() == a.Is4() {
			return gateway
		}
	}
	return netip.Addr{}
}

// An attachment's own tables are numbered from its key: so attachments need not agree on who takes which, DEL finds them by the key
// alone, and they are far from the numbers that people choose. Each address has one, and there are at most so many.
const (
	firstOwnTable = 1 << 30
	tables        = 1 << 6
)

// ownTable returns the number of the attachment's i-th table.
func ownTable(k plugin.Key, i int) int {
	id := k.ID("sbr")
	return firstOwnTable | int(binary.BigEndian.Uint32(id[8:])%firstOwnTable&^(tables-1)) | i
}

// isOwnTable reports whether a table is one of the attachment's own.
func isOwnTable(k plugin.Key, table int) bool { return table&^(tables-1) == ownTable(k, 0) }
