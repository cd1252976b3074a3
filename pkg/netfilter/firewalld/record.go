package firewalld

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// firewalld does not say whose a source is. So there is a file with a record for each that is ours, which is written before a source is
// added and after it is removed. It goes when the host goes down, as the sources do.
//
//	{"network":"net","containerID":"0123456789ab","ifname":"eth0","address":"10.88.0.2","zone":"trusted"}
const (
	lockFile   = "firewalld/lock"
	recordFile = "firewalld/sources"
)

// holding is an attachment's address and its zone. An address is in one record at most.
type holding struct {
	addr netip.Addr
	zone Zone
	key  plugin.Key
}

// readRecord returns what the file has, without what makes no sense.
func readRecord() (list []holding, err error) {
	records, lines, err := state.ReadRecords(state.RunFile(recordFile))
	for _, r := range records {
		var addr, zone string
		r.String("address", &addr)
		r.String("zone", &zone)
		list = appendHolding(list, addr, zone, plugin.KeyIn(r))
	}
	for _, line := range lines { // of the version before
		if f := strings.Fields(line); len(f) == 5 {
			list = appendHolding(list, f[0], f[1], plugin.Key{Network: f[2], ContainerID: f[3], IfName: f[4]})
		}
	}
	return list, err
}

func appendHolding(list []holding, addr, zone string, key plugin.Key) []holding {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return list
	}
	return append(list, holding{a, Zone(zone), key})
}

// writeRecord replaces the file. The lock is held.
func writeRecord(list []holding) error {
	var records []*conf.Object
	for _, h := range list {
		r := conf.New()
		h.key.Put(r)
		r.Set("address", h.addr.String())
		r.Set("zone", string(h.zone))
		records = append(records, r)
	}
	const mode = 0o600
	return state.WriteRecords(state.RunFile(recordFile), records, mode)
}

// indexOf returns where an address is in a list, -1 if it is not.
func indexOf(list []holding, addr netip.Addr) int {
	return slices.IndexFunc(list, func(h holding) bool { return h.addr == addr })
}
