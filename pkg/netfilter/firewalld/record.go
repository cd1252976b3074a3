package firewalld

import (
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// firewalld does not say whose a source is. So there is a file with a record for each that cnibox adds, which is written before a source is
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
	records, err := state.ReadRecords(state.RunFile(recordFile))
	for _, r := range records {
		var text, zone string
		r.String("address", &text)
		r.String("zone", &zone)
		if addr, err := netip.ParseAddr(text); err == nil {
			list = append(list, holding{addr, Zone(zone), plugin.KeyIn(r)})
		}
	}
	return list, err
}

// writeRecord replaces the file. The lock is held.
func writeRecord(list []holding) error {
	var records []*conf.Object
	for _, h := range list {
		r := conf.New()
		h.key.SetIn(r)
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
