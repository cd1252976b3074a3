package nft

import (
	"context"
	"fmt"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// leftBy returns the elements of the published ports of an owner that is gone:
// a node that crashed never sent its DEL. The error is that a port is taken, by
// an owner that is not known to be gone.
func (t *Table) leftBy(ctx context.Context, comment, port string) ([]nftables.Element, error) {
	key, ok := keyOfComment(comment)
	if !ok {
		return nil, portTaken(port, comment, "its whole name, and so whether it runs, can't be told from the table")
	}
	gone, known := netfilter.Gone(t.cache, key)
	if !gone {
		return nil, portTaken(port, comment, known)
	}
	a := attachmentOf(key, usePortMap)
	records, err := t.held(ctx, a.id)
	if err != nil {
		return nil, err
	}
	own, _, _, err := t.ownElements(ctx, a, records)
	if err != nil {
		return nil, err
	}
	return append(own, a.entries(records)...), forbidLocalhost(records)
}

// keyOfComment returns the key that an element's comment stands for, unless it
// was shortened or has a character replaced.
func keyOfComment(comment string) (key plugin.Key, ok bool) {
	parts := strings.Split(comment, "/")
	if len(parts) != 3 || strings.ContainsAny(comment, "~:") {
		return key, false
	}
	return plugin.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}, true
}

func portTaken(port, owner, known string) error {
	if owner == "" {
		owner, known = "something that left no name", "see what holds it with `nft list table inet "+TableName+"`"
	}
	return plugin.Errorf(fmt.Sprintf("%s; publish another port of the host, or stop that container (network/container/interface); "+
		"if it is gone, the network's GC frees the port", known), "host port %s is already published by %s", port, owner)
}
