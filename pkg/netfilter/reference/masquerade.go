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

// MasqueradeTables are those of bridge and ptp.
func MasqueradeTables() []nftables.Table {
	return []nftables.Table{{Family: nftables.TableFamilyINet, Name: "cni_plugins_masquerade"}}
}

// DelMasquerade removes the masquerade of an attachment.
func DelMasquerade(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	own := attachmentHash(key)
	return removeMasquerades(ctx, c, func(owner string) bool { return owner == own })
}

// GCMasquerade removes the masquerades of a network's attachments that are not valid.
func GCMasquerade(ctx context.Context, c *nft.Conn, network string, valid []plugin.Key) error {
	keep := make(map[string]bool, len(valid))
	for _, k := range valid {
		keep[attachmentHash(k)] = true
	}
	return removeMasquerades(ctx, c, func(owner string) bool { return strings.HasPrefix(owner, hash(network)+"-") && !keep[owner] })
}

// removeMasquerades removes those of some attachments, whose hashes their comments begin with. What follows is for people, and may
// be cut.
func removeMasquerades(ctx context.Context, c *nft.Conn, isStale func(owner string) bool) error {
	return remove(ctx, c, MasqueradeTables(), []string{"masq_checks"}, func(r *nftables.Rule) bool {
		owner, _, _ := strings.Cut(commentOf(r), ",")
		return isStale(owner)
	})
}

func attachmentHash(k plugin.Key) string {
	return hash(k.Network) + "-" + hash(k.IfName+":"+k.ContainerID)
}

func hash(text string) string {
	const bytes = 8
	sum := sha512.Sum512([]byte(text))
	return hex.EncodeToString(sum[:bytes])
}
