package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// A ruleset of an earlier version is taken over as a whole, in one transaction:
// packets see the one or the other. Who finds it does that: an ADD that finds
// none of the present version, and every DEL, CHECK and GC, which look for both
// with one message. An earlier binary that is at work at the same time can make
// its ruleset again beside ours; the next DEL takes that over too.
//
// To be taken over by a later version, this one needs a parse function for its
// records and the ids of its parts there; the rest is the same.

// version1 ends the names of the first version's sets and chains. They are the
// same as now, without ports with conditions or with marks of their own.
const version1 = "_v1"

// owners1 is the first version's map of owners, which is there exactly if the
// rest of it is.
var owners1 = nftables.Set{Table: table, Name: "owners" + version1}

// name1 returns the name that a set had in the first version.
func name1(now string) string { return strings.Replace(now, version, version1, 1) }

// isName1 tells whether a set or chain is the first version's.
func isName1(name string) bool {
	return strings.HasSuffix(name, version1) || strings.Contains(name, version1+"_")
}

// parseRecord1 reads the first version's data of owners: kind, link, address,
// protocol, port.
func parseRecord1(data []byte) (record, bool) {
	if len(data) != 4+unix.IFNAMSIZ+16+4+4 {
		return record{}, false
	}
	link, behind := data[4:4+unix.IFNAMSIZ], data[4+unix.IFNAMSIZ:]
	r := record{
		kind: kind(binary.NativeEndian.Uint32(data)),
		link: unix.ByteSliceToString(link),
		addr: netip.AddrFrom16([16]byte(behind)).Unmap(),
		port: binary.BigEndian.Uint16(behind[20:]),
	}
	if r.kind&kindPort != 0 {
		r.bit, r.proto = defaultBit, behind[16]
	}
	return r, true
}

// earlier is what a ruleset of an earlier version holds.
type earlier struct {
	owners map[plugin.ID]*owner
	sets   map[string]map[string]nftables.Found // by the set's name then and the element's key
}

// owner is an attachment with its records, by number.
type owner struct {
	attachment
	records map[uint32]record
}

// migrate takes over a ruleset of an earlier version. It tells whether there was
// one.
func (t *Table) migrate(ctx context.Context) (bool, error) {
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		generation, err := t.generation()
		if err != nil {
			return false, err
		}
		if found, err := t.conn.HasSet(&owners1); err != nil || !found {
			return false, err
		}
		tx, err := t.migration(ctx)
		if err != nil {
			return false, err
		}
		err = t.conn.CommitIf(tx, generation)
		if !errors.Is(err, unix.ERESTART) {
			return err == nil, explain(tx, err)
		}
	}
	return false, contended("take over the earlier ruleset in table inet "+TableName, nftables.ErrBusy)
}

// migration returns the transaction that makes the present ruleset of the first
// version's.
func (t *Table) migration(ctx context.Context) (*nftables.Transaction, error) {
	old, err := t.readEarlier()
	if err != nil {
		return nil, err
	}
	there, err := t.conn.HasSet(&owners)
	if err != nil {
		return nil, err
	}
	claims, entries, elements, err := t.takenOver(ctx, old, there)
	if err != nil {
		return nil, err
	}
	parts := partsOf(claims)
	tx := &nftables.Transaction{}
	if !there {
		appendRuleset(tx)
	} else if parts, err = t.missing(parts); err != nil {
		return nil, err
	}
	for i := range parts {
		parts[i].appendTo(tx)
	}
	tx.AddElements(entries)
	tx.AddElements(elements)
	sets := append(slices.Sorted(maps.Keys(old.sets)), owners1.Name)
	return tx, t.appendRemoval(tx, sets, isName1)
}

// readEarlier reads the first version's ruleset.
func (t *Table) readEarlier() (*earlier, error) {
	old := &earlier{owners: map[plugin.ID]*owner{}, sets: map[string]map[string]nftables.Found{}}
	err := t.conn.List(&owners1, func(key []byte, f nftables.Found) {
		r, ok := parseRecord1(f.Data)
		if !ok || len(key) != 16+4 {
			return
		}
		id := plugin.ID(key[:16])
		if old.owners[id] == nil {
			old.owners[id] = &owner{attachment{id: id, comment: f.Comment}, map[uint32]record{}}
		}
		old.owners[id].records[binary.NativeEndian.Uint32(key[16:])] = r
	})
	if err != nil {
		return nil, listErr(err)
	}
	names, err := t.conn.Sets(table, "")
	if err != nil {
		return nil, listErr(err)
	}
	for _, name := range names {
		if !isName1(name) || name == owners1.Name {
			continue
		}
		elements := map[string]nftables.Found{}
		old.sets[name] = elements
		err := t.conn.List(&nftables.Set{Table: table, Name: name}, func(key []byte, f nftables.Found) {
			f.Data = bytes.Clone(f.Data)
			elements[string(key)] = f
		})
		if err != nil {
			return nil, listErr(err)
		}
	}
	return old, nil
}

// takenOver returns what is to be in the present ruleset. What is there already
// stays: it is newer.
func (t *Table) takenOver(ctx context.Context, old *earlier, there bool) (claims []claim, entries, elements []nftables.Element, err error) {
	for _, o := range old.owners {
		if there {
			first := []nftables.Element{ownerElement(o.id, 0)}
			if found, err := t.look(ctx, first); err != nil {
				return nil, nil, nil, err
			} else if found[0].There {
				continue
			}
		}
		list, own := old.claimsOf(o)
		claims = append(claims, list...)
		entries = append(entries, o.entries(recordsOf(list))...)
		elements = append(elements, own...)
	}
	elements = append(elements, old.guards()...)
	elements = nftables.BySet(nftables.Distinct(elements))
	if !there {
		return claims, entries, elements, nil
	}
	found, err := t.look(ctx, elements)
	if err != nil {
		return nil, nil, nil, err
	}
	var absent []nftables.Element
	for i, e := range elements {
		if !found[i].There {
			absent = append(absent, e)
		}
	}
	return claims, entries, absent, nil
}

// claimsOf returns what an attachment held, and those of its elements that had
// not passed to another one.
func (old *earlier) claimsOf(o *owner) (claims []claim, elements []nftables.Element) {
	for _, n := range slices.Sorted(maps.Keys(o.records)) {
		c := claim{record: o.records[n]}
		claims = append(claims, c)
		for _, e := range c.record.elements() {
			before := old.sets[name1(e.Set.Name)][string(e.Key)]
			if !before.There || e.Shared || before.Comment != o.comment {
				continue
			}
			e.Data, e.Comment = before.Data, before.Comment
			elements = append(elements, e)
		}
	}
	return claims, elements
}

// guards returns the guards of links that belong to nobody: route_localnet may
// be set for them.
func (old *earlier) guards() []nftables.Element {
	var out []nftables.Element
	for key, f := range old.sets[name1(inside.Name)] {
		if f.Comment == guardComment {
			out = append(out, nftables.Element{Set: &inside, Key: []byte(key), Comment: f.Comment, Shared: true, What: "a guard", Stage: addElements})
		}
	}
	return out
}
