package reference

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// masqueradeTable is that of bridge and ptp.
func masqueradeTable() furniture {
	return furniture{nftables.Table{Family: nftables.TableFamilyINet, Name: "cni_plugins_masquerade"}, []string{"masq_checks"}}
}

// MasqueradeTables are the tables in which DelMasquerade looks.
func MasqueradeTables() []nftables.Table { return []nftables.Table{masqueradeTable().table} }

// DelMasquerade removes the masquerade of an attachment.
func DelMasquerade(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	own := attachmentHash(key)
	return remove(ctx, c, []furniture{masqueradeTable()}, func(r *nftables.Rule) (bool, error) {
		return strings.HasPrefix(commentOf(r), own), nil
	})
}

// GCMasquerade removes the masquerades of a network's attachments that are not
// valid.
func GCMasquerade(ctx context.Context, c *nft.Conn, network string, valid []plugin.Key) error {
	keep := make(map[string]bool, len(valid))
	for _, k := range valid {
		keep[attachmentHash(k)] = true
	}
	own := networkHash(network) + "-"
	return remove(ctx, c, []furniture{masqueradeTable()}, func(r *nftables.Rule) (bool, error) {
		owner, _, _ := strings.Cut(commentOf(r), ",")
		return strings.HasPrefix(owner, own) && !keep[owner], nil
	})
}

// attachmentHash is what the comments of an attachment's rules begin with. What
// follows is for people, and may be cut.
func attachmentHash(k plugin.Key) string {
	return networkHash(k.Network) + "-" + hash(k.IfName+":"+k.ContainerID)
}

func networkHash(network string) string { return hash(network) }

func hash(text string) string {
	const bytes = 8
	sum := sha512.Sum512([]byte(text))
	return hex.EncodeToString(sum[:bytes])
}
