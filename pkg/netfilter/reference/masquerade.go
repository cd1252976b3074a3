package reference

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Masquerade is what bridge and ptp have. The comments of rules begin with the attachment's hash; what follows is for people, and may
// be cut.
func Masquerade() Use {
	tables := []nftables.Table{{Family: nftables.TableFamilyINet, Name: "cni_plugins_masquerade"}}
	remove := func(ctx context.Context, c *nft.Conn, isStale func(owner string) bool) error {
		return stale{rule: func(r *nftables.Rule) bool {
			owner, _, _ := strings.Cut(nft.CommentIn(r.UserData), ",")
			return isStale(owner)
		}}.remove(ctx, c, tables, "masq_checks")
	}
	return Use{
		Tables: tables,
		Del: func(ctx context.Context, c *nft.Conn, key plugin.Key, _ []netip.Prefix) error {
			own := attachmentHash(key)
			return remove(ctx, c, func(owner string) bool { return owner == own })
		},
		GC: func(ctx context.Context, c *nft.Conn, network string, valid []plugin.Key) error {
			keep := map[string]bool{}
			for _, k := range valid {
				keep[attachmentHash(k)] = true
			}
			return remove(ctx, c, func(owner string) bool { return strings.HasPrefix(owner, hash(network)+"-") && !keep[owner] })
		},
	}
}

func attachmentHash(k plugin.Key) string {
	return hash(k.Network) + "-" + hash(k.IfName+":"+k.ContainerID)
}

func hash(text string) string {
	const bytes = 8
	sum := sha512.Sum512([]byte(text))
	return hex.EncodeToString(sum[:bytes])
}
