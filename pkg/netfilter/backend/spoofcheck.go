package backend

import (
	"context"
	"errors"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The check of the MAC address that a container sends from is nftables' alone.

// spoofCheckTables are the tables in which there can be something to remove: ours,
// and the reference plugin's.
func spoofCheckTables() []nftables.Table {
	return append(reference.SpoofCheckTables(), nft.SpoofCheckTable())
}

// AddSpoofCheck has packets dropped that the host's end of the attachment's veth
// gets from any other MAC address.
func AddSpoofCheck(ctx context.Context, key plugin.Key, hostEnd string, mac [6]byte) error {
	return withConn(func(c *nft.Conn) error { return c.AddSpoofCheck(ctx, key, hostEnd, mac) })
}

// DelSpoofCheck removes that, and what the reference bridge plugin has made for the
// attachment.
func DelSpoofCheck(ctx context.Context, key plugin.Key) error {
	h, err := look(spoofCheckTables())
	if err != nil {
		return err
	}
	defer h.close()
	return h.delSpoofCheck(ctx, key)
}

func (h *host) delSpoofCheck(ctx context.Context, key plugin.Key) error {
	if !h.hasAny(spoofCheckTables()) {
		return nil
	}
	return errors.Join(
		h.inNFT(func(c *nft.Conn) error { return c.DelSpoofCheck(ctx, key) }),
		h.inReference(reference.SpoofCheckTables(), func(c *nft.Conn) error { return reference.DelSpoofCheck(ctx, c, key) }))
}

// CheckSpoofCheck compares what is there with what AddSpoofCheck makes. What the
// reference plugin has made will do.
func CheckSpoofCheck(key plugin.Key, hostEnd string, mac [6]byte) error {
	return withConn(func(c *nft.Conn) error {
		err := c.CheckSpoofCheck(key, hostEnd, mac)
		if err == nil {
			return nil
		}
		if there, asked := reference.HasSpoofCheck(c, key); there && asked == nil {
			return nil
		}
		return err
	})
}

// GCSpoofCheck removes what attachments of the network have that are not valid.
// results are as for DelPortMaps.
func GCSpoofCheck(ctx context.Context, results, network string, valid []plugin.Key) error {
	return ignoreUnavailable(withConn(func(c *nft.Conn) error {
		return errors.Join(c.GCSpoofCheck(ctx, network, valid), reference.GCSpoofCheck(ctx, c, results, valid))
	}))
}

// SpoofCheckAvailable reports whether the kernel has what the check needs.
func SpoofCheckAvailable() error { return withConn((*nft.Conn).SpoofCheckAvailable) }

func withConn(do func(*nft.Conn) error) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	return h.withNFT(do)
}
