package firewalld

import (
	"context"
	"errors"
	"fmt"
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

// locked calls f with firewalld and the record, while no other process adds or removes sources.
func locked(ctx context.Context, f func(c *client, list []holding) error) error {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return err
	}
	l, err := state.Acquire(ctx, stateDir+"/lock", 0o600, 30*time.Second)
	if err != nil {
		return err
	}
	defer l.Release()
	c, err := open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	list, err := readRecord()
	if err != nil {
		return err
	}
	return f(c, list)
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
		fmt.Fprintln(&b, h.addr, h.zone, h.key.Network, h.key.ContainerID, h.key.IfName)
	}
	if b.Len() > 0 {
		return state.Write(recordFile, []byte(b.String()), 0o600)
	}
	if err := os.Remove(recordFile); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
