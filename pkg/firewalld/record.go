package firewalld

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"time"

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
	zone string
	key  plugin.Key
}

// lock excludes other processes that add and remove sources.
func lock(ctx context.Context) (*state.Lock, error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	return state.Acquire(ctx, stateDir+"/lock", 0o600, 30*time.Second)
}

// readRecord returns the file's lines, without those that make no sense.
func readRecord() (list []holding, err error) {
	text, err := os.ReadFile(recordFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 5 {
			if addr, err := netip.ParseAddr(f[0]); err == nil {
				list = append(list, holding{addr, f[1], plugin.Key{Network: f[2], ContainerID: f[3], IfName: f[4]}})
			}
		}
	}
	return list, err
}

// writeRecord replaces the file. The lock is held.
func writeRecord(list []holding) error {
	var b strings.Builder
	for _, h := range list {
		b.WriteString(strings.Join([]string{h.addr.String(), h.zone, h.key.Network, h.key.ContainerID, h.key.IfName}, " ") + "\n")
	}
	if b.Len() > 0 {
		return state.Write(recordFile, []byte(b.String()), 0o600)
	}
	if err := os.Remove(recordFile); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
