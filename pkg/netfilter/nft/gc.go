package nft

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// collect releases what attachments of a network hold for a use and are not
// valid.
func (t *Table) collect(ctx context.Context, network, use string, valid []plugin.Key) error {
	keep := make(map[plugin.ID]bool, len(valid))
	for _, k := range valid {
		keep[k.ID(use)] = true
	}
	owners, err := t.ownersOf(ctx, network, use)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range owners {
		if !keep[a.id] {
			_, err := t.release(ctx, a)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// collectGuards removes guards of links that are gone. A link that comes again
// has route_localnet unset, and a guard is made before it is set.
func (t *Table) collectGuards() error {
	generation, err := t.generation()
	if err != nil {
		return err
	}
	var gone []nftables.Element
	err = t.conn.List(&inside, func(key []byte, _ nftables.Found) {
		link := unix.ByteSliceToString(key)
		if _, err := netfilter.LocalhostAllowed(link); errors.Is(err, unix.ENOENT) {
			gone = append(gone, nftables.Element{Set: &inside, Key: nftables.Link(link), What: link})
		}
	})
	if err != nil {
		return err
	}
	tx := &nftables.Transaction{}
	tx.RemoveElements(removeElements, nftables.Distinct(gone))
	return unlessChanged(t.conn.CommitIf(tx, generation))
}

// generation returns the number that counts the transactions of the namespace.
func (t *Table) generation() (uint32, error) {
	n, err := t.conn.Generation()
	if err != nil && nftables.Lacking(err) {
		err = unavailable(err)
	}
	return n, err
}

// unlessChanged forgives that something else changed first.
func unlessChanged(err error) error {
	if errors.Is(err, unix.ERESTART) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
