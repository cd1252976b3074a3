package reference

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sha512"
)

// masquerading is the table of bridge and ptp.
func masquerading() []furniture {
	return []furniture{{
		Table:         nftables.Table{Family: unix.NFPROTO_INET, Name: "cni_plugins_masquerade"},
		perAttachment: []string{"masq_checks"},
		static:        []string{"postrouting"},
	}}
}

// MasqueradeTables are the tables in which DelMasquerade looks.
func MasqueradeTables() []nftables.Table { return tablesOf(masquerading()) }

// DelMasquerade removes the masquerade of an attachment.
func DelMasquerade(ctx context.Context, key plugin.Key) error {
	own := attachmentHash(key)
	return remove(ctx, masquerading(), func(r nftables.Installed) (bool, error) {
		return strings.HasPrefix(r.Comment, own), nil
	})
}

// GCMasquerade removes the masquerades of a network's attachments that are not
// valid.
func GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	keep := make([]string, len(valid))
	for i, k := range valid {
		keep[i] = attachmentHash(k)
	}
	slices.Sort(keep)
	own := networkHash(network) + "-"
	return remove(ctx, masquerading(), func(r nftables.Installed) (bool, error) {
		if !strings.HasPrefix(r.Comment, own) {
			return false, nil
		}
		owner, _, _ := strings.Cut(r.Comment, ",")
		_, isValid := slices.BinarySearch(keep, owner)
		return !isValid, nil
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
