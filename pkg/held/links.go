package held

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// aliasPrefix starts the alias of every link of the host that an attachment holds. The key follows, for `ip link` to show and for GC
// to read.
const aliasPrefix = "cnibox "

// Alias is the alias of a link that an attachment holds. It ends in the network's hash, which GC goes by, if the key's text may not have
// all of the network's name.
func Alias(k plugin.Key) string {
	alias := aliasPrefix + k.String()
	if len(k.String()) < plugin.MaxKeyText {
		return alias
	}
	return alias + " " + networkHash(k.Network)
}

func networkHash(network string) string { return fmt.Sprintf("%x", plugin.NetworkHash(network)) }

// OwnerOf returns the key's text by the alias of a link, "" if cnibox did not set that.
func OwnerOf(l netlink.Link) string {
	owner, _ := readAlias(l)
	return owner
}

func readAlias(l netlink.Link) (owner, networkHash string) {
	text, ok := strings.CutPrefix(l.Attrs().Alias, aliasPrefix)
	if !ok {
		return "", ""
	}
	owner, networkHash, _ = strings.Cut(text, " ")
	return owner, networkHash
}

// Links are the links of a kind that attachments hold on the host. They are known by their aliases.
type Links struct {
	Kind string
	Host *netlink.Handle
}

// Held lists the links.
func (s Links) Held(_ context.Context, network string) (list []plugin.Held, err error) {
	links, err := link.OfKind(s.Kind)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list links of kind %s: %w", s.Kind, err)
	}
	for _, l := range links {
		owner, hash := readAlias(l)
		if owner == "" {
			continue
		}
		key := plugin.ParseKey(owner)
		if hash == networkHash(network) {
			key.Network = network
		}
		list = append(list, Link(l, key, owner))
	}
	return list, err
}

// Link describes a link for Links to release.
func Link(l netlink.Link, key plugin.Key, owner string) plugin.Held {
	return plugin.Held{Key: key, Owner: owner, What: "link " + l.Attrs().Name, Own: l.Attrs().Index}
}

// Release deletes links.
func (s Links) Release(_ context.Context, list []plugin.Held) error {
	var indexes []int
	for _, h := range list {
		indexes = append(indexes, h.Own.(int))
	}
	return link.DeleteAll(s.Host, indexes)
}
