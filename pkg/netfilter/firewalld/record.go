package firewalld

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// firewalld does not say whose a source is. So there is a file with a line for
// each that is ours, "10.88.0.2 trusted network containerID ifname", which is
// written before a source is added and after it is removed. It goes when the
// host goes down, as the sources do.
const (
	stateDir   = "/run/cnibox/firewalld"
	recordFile = stateDir + "/sources"
)

// holding is one line: an attachment's address and its zone. An address is in
// one line at most.
type holding struct {
	addr netip.Addr
	zone Zone
	key  plugin.Key
}

// readRecord returns the file's lines, without those that make no sense.
func readRecord() (list []holding, err error) {
	lines, err := state.ReadLines(recordFile)
	for _, line := range lines {
		if f := strings.Fields(line); len(f) == 5 {
			if addr, err := netip.ParseAddr(f[0]); err == nil {
				list = append(list, holding{addr, Zone(f[1]), plugin.Key{Network: f[2], ContainerID: f[3], IfName: f[4]}})
			}
		}
	}
	return list, err
}

// writeRecord replaces the file. The lock is held.
func writeRecord(list []holding) error {
	var lines []string
	for _, h := range list {
		lines = append(lines, strings.Join([]string{h.addr.String(), string(h.zone), h.key.Network, h.key.ContainerID, h.key.IfName}, " "))
	}
	return state.WriteLines(recordFile, lines, 0o600)
}

// indexOf returns where an address is in a list, -1 if it is not.
func indexOf(list []holding, addr netip.Addr) int {
	return slices.IndexFunc(list, func(h holding) bool { return h.addr == addr })
}
