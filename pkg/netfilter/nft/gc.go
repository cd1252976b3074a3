package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// collect releases what attachments of a network hold for a use and are not
// valid.
func (t *Table) collect(ctx context.Context, network, use string, valid []plugin.Key) error {
	keep := make(map[plugin.ID]bool, len(valid))
	for _, k := range valid {
		keep[k.ID(use)] = true
	}
	owners, err := t.ownersOf(network, use)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range owners {
		if !keep[a.id] {
			errs = append(errs, t.release(ctx, a))
		}
	}
	return errors.Join(errs...)
}

// collectSubnets removes the sets and rules of subnets without addresses. If
// anything changes meanwhile they are left for another time: one may have been
// given an address.
func (t *Table) collectSubnets() error {
	generation, err := t.generation()
	if err != nil {
		return err
	}
	names, err := t.subnets()
	if err != nil || len(names) == 0 {
		return err
	}
	rules, err := t.rules()
	if err != nil {
		return err
	}
	tx := &transaction{}
	for _, name := range names {
		empty := true
		err := t.list(&set{name: name}, func(_, _ []byte, _ string) { empty = false })
		if err != nil {
			return err
		}
		if empty {
			appendSubnetRemoval(tx, name, rules)
		}
	}
	return unlessChanged(t.commitIf(tx, generation))
}

func appendSubnetRemoval(tx *transaction, name string, rules []installed) {
	for _, r := range rules {
		if r.set != name {
			continue
		}
		tx.add(unix.NFT_MSG_DELRULE, 0, removeElements, "remove the rule for "+name, func(b *netlink.Batch) {
			b.String(unix.NFTA_RULE_TABLE, TableName)
			b.String(unix.NFTA_RULE_CHAIN, r.chain)
			b.BE64(unix.NFTA_RULE_HANDLE, r.handle)
		})
	}
	tx.add(unix.NFT_MSG_DELSET, 0, removeElements, "remove set "+name, func(b *netlink.Batch) {
		b.String(unix.NFTA_SET_TABLE, TableName)
		b.String(unix.NFTA_SET_NAME, name)
	})
}

// subnets lists the names of the subnets' sets.
func (t *Table) subnets() ([]string, error) {
	var names []string
	b := &netlink.Batch{}
	get(b, unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, "list the sets of table inet "+TableName, func() {
		b.String(unix.NFTA_SET_TABLE, TableName)
	})
	err := t.conn.Do(b, func(m netlink.Message) {
		name := text(netlink.Attr(attributes(m), unix.NFTA_SET_NAME))
		if strings.HasPrefix(name, subnetPrefix) {
			names = append(names, name)
		}
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, netlink.ErrInterrupted) {
		return nil, nil
	}
	return names, err
}

// collectGuards removes guards of links that are gone. A link that comes again
// has route_localnet unset, and a guard is made before it is set.
func (t *Table) collectGuards() error {
	generation, err := t.generation()
	if err != nil {
		return err
	}
	var gone []element
	err = t.list(&inside, func(key, _ []byte, _ string) {
		link := unix.ByteSliceToString(key)
		if _, err := netfilter.LocalhostAllowed(link); errors.Is(err, unix.ENOENT) {
			gone = append(gone, element{set: &inside, key: linkPart(link), what: link})
		}
	})
	if err != nil {
		return err
	}
	tx := &transaction{}
	appendElements(tx, unix.NFT_MSG_DELSETELEM, distinct(gone))
	return unlessChanged(t.commitIf(tx, generation))
}

// generation returns the number that counts the transactions of the namespace.
func (t *Table) generation() (uint32, error) {
	var generation uint32
	b := &netlink.Batch{}
	get(b, unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, "read the generation of nf_tables", func() {})
	err := t.conn.Do(b, func(m netlink.Message) {
		if v := netlink.Attr(attributes(m), unix.NFTA_GEN_ID); len(v) == 4 {
			generation = binary.BigEndian.Uint32(v)
		}
	})
	switch {
	case err != nil && lacking(err):
		return 0, unavailable(err)
	case err == nil && generation == 0:
		return 0, fmt.Errorf("read the generation of nf_tables: the kernel did not tell it")
	}
	return generation, err
}

// unlessChanged forgives that something else changed first.
func unlessChanged(err error) error {
	if errors.Is(err, unix.ERESTART) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
