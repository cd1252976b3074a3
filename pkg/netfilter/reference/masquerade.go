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

// MasqueradeRules is what bridge and ptp have, for a request's attachment and network. It implements plugin.Store.
type MasqueradeRules struct{ *plugin.Request }

// Tables are those with its rules.
func (MasqueradeRules) Tables() []nftables.Table {
	return []nftables.Table{{Family: nftables.TableFamilyINet, Name: "cni_plugins_masquerade"}}
}

func (MasqueradeRules) chains() []string { return []string{"masq_checks"} }

// ownerIn returns the hash of an attachment, with which the comment begins. The rest is for people, and may be cut.
func (MasqueradeRules) ownerIn(r *nftables.Rule) string {
	owner, _, _ := strings.Cut(nft.CommentIn(r.UserData), ",")
	return owner
}

// LeadsTo reports whether the attachment has rules for all of some addresses.
func (m MasqueradeRules) LeadsTo(ctx context.Context, c *nft.Conn, addrs []netip.Prefix) (bool, error) {
	return leadTo(ctx, c, m, attachmentHash(m.Key), addrs)
}

// Del removes what the attachment has.
func (m MasqueradeRules) Del(ctx context.Context, c *nft.Conn, _ []netip.Prefix) error {
	return remove(ctx, c, m, map[string]bool{attachmentHash(m.Key): true}, nil)
}

func attachmentHash(k plugin.Key) string {
	return hash(k.Network) + "-" + hash(k.IfName+":"+k.ContainerID)
}

func hash(text string) string {
	const bytes = 8
	sum := sha512.Sum512([]byte(text))
	return hex.EncodeToString(sum[:bytes])
}

// Held lists what the network's attachments have. Of one that is not valid only the network is known.
func (m MasqueradeRules) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	known := map[string]plugin.Key{}
	for _, k := range m.Valid {
		known[attachmentHash(k)] = k
	}
	all, err := owners(ctx, m)
	for _, owner := range all {
		h := plugin.Held{What: "masquerading of the reference plugin", Own: owner}
		if key, valid := known[owner]; valid {
			h.Key, h.Owner = key, key.String()
		} else if strings.HasPrefix(owner, hash(network)+"-") {
			h.Key.Network = network
		} else if network != "" {
			continue
		}
		list = append(list, h)
	}
	return list, err
}

// Release removes it.
func (m MasqueradeRules) Release(ctx context.Context, list []plugin.Held) error {
	return release(ctx, m, list)
}
