package netfilter

import (
	"context"
	"errors"
	"net/netip"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// SpoofCheck has packets dropped that the host's end of the attachment's veth gets from any other MAC address. It is nftables' alone.
type SpoofCheck struct {
	HostEnd string
	MAC     [6]byte
}

// Add gives it to an attachment, in place of what that has.
func (s SpoofCheck) Add(ctx context.Context, key plugin.Key) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Add(ctx, key, nft.ToCheckSpoofing(s.HostEnd, s.MAC))
}

// Repair gives the attachment what is missing of it.
func (s SpoofCheck) Repair(ctx context.Context, key plugin.Key) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Repair(ctx, key, nft.ToCheckSpoofing(s.HostEnd, s.MAC))
}

// Check compares what is there with what Add makes. What the reference plugin made will do.
func (s SpoofCheck) Check(key plugin.Key) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	err = conn.Check(key, nft.ToCheckSpoofing(s.HostEnd, s.MAC))
	if err != nil && (reference.SpoofChains{}).IsThere(conn, key) {
		return nil
	}
	return err
}

// Available reports whether the host has what Add needs.
func (SpoofCheck) Available() error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Available(nft.SpoofChecking)
}

func (SpoofCheck) tables() []nftables.Table {
	return append(reference.SpoofChains{}.Tables(), nft.SpoofChecking.Table)
}

func (SpoofCheck) del(ctx context.Context, h host, hint []netip.Prefix) (err error) {
	if h.has(nft.SpoofChecking.Table) {
		_, err = h.conn.Del(ctx, h.Key, nft.SpoofChecking)
	}
	return errors.Join(err, h.delLeftover(ctx, reference.SpoofChains{Request: h.Request}, hint))
}

func (SpoofCheck) stores(r *plugin.Request) []plugin.Store {
	return []plugin.Store{nft.SpoofChecking, reference.SpoofChains{Request: r}}
}
