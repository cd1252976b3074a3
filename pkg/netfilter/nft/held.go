package nft

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// locked does something with one of our tables, if it is there, while nobody makes a change: a list that is interrupted by one may lack
// something.
func locked(ctx context.Context, which nftables.Table, do func(*table) error) error {
	c, err := Open()
	if err != nil {
		return err
	}
	defer c.Close()
	there, err := c.HasTables(which)
	if err != nil || !there[0] {
		return err
	}
	t := c.table(which)
	return t.change(ctx, func() error { return do(t) })
}

// own is what Held notes of a thing for Release, and for PortOf.
type own struct {
	owner
	record
	refused uint64
}

// PortOf returns the port of the host that is published, if that is what is held. Which port of the container it leads to is not known.
func PortOf(h plugin.Held) (port spec.PortMap, ok bool) {
	of, ok := h.Own.(own)
	if !ok || of.record.kind != kindPort {
		return spec.PortMap{}, false
	}
	return of.record.portMap(), true
}

// RefusedOf returns how many packets were refused for what is held.
func RefusedOf(h plugin.Held) uint64 {
	of, _ := h.Own.(own)
	return of.refused
}

// refusals returns the packets that sets have counted, by their elements' ids.
func (t *table) refusals() (map[string]uint64, error) {
	counted := map[string]uint64{}
	for _, s := range t.sets {
		if !s.Counter {
			continue
		}
		list, err := t.conn.GetSetElements(s)
		if err != nil {
			return nil, kernelError("list what table "+t.String()+" has counted", err)
		}
		for _, e := range list {
			if e.Counter != nil {
				counted[newElement(s, e.Key).id()] = e.Counter.Packets
			}
		}
	}
	return counted, nil
}

// Held lists what attachments have for the purpose. It implements plugin.Store.
func (p Purpose) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	err = locked(ctx, p.Table, func(t *table) error {
		list = nil
		all, err := t.allRecords()
		if len(all) == 0 {
			return err
		}
		counted, err2 := t.refusals()
		err = errors.Join(err, err2)
		for o, records := range all {
			key := o.key(network)
			if records[0].kind.purpose() != p || network != "" && key.Network != network {
				continue
			}
			for _, r := range records {
				h := own{owner: o, record: r}
				for _, e := range t.elements(r) {
					h.refused += counted[e.id()]
				}
				list = append(list, plugin.Held{Key: key, Owner: o.keyText(), What: p.name + " " + r.String(), Own: h})
			}
		}
		return err
	})
	return list, err
}

// Release takes things back, and waits until no packet matches them.
func (p Purpose) Release(ctx context.Context, list []plugin.Held) error {
	listed := map[owner]bool{}
	for _, h := range list {
		listed[h.Own.(own).owner] = true
	}
	return locked(ctx, p.Table, func(t *table) error {
		all, err := t.allRecords()
		if err != nil {
			return err
		}
		maps.DeleteFunc(all, func(o owner, _ []record) bool { return !listed[o] })
		removed, err := t.releaseAll(all)
		return errors.Join(err, t.lookWhenExpired(removed))
	})
}

// UnusedLists is a store of the lists in one of our tables that nobody has, as an ADD that was killed leaves them. They count as the network's that
// asks.
type UnusedLists struct{ nftables.Table }

// Held lists them.
func (u UnusedLists) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	err = locked(ctx, u.Table, func(t *table) error {
		ids, err := t.unusedLists()
		for _, id := range ids {
			list = append(list, plugin.Held{Key: plugin.Key{Network: network}, What: "list of nobody in " + listChain(id)})
		}
		return err
	})
	return list, err
}

// Release removes them.
func (u UnusedLists) Release(ctx context.Context, _ []plugin.Held) error {
	return locked(ctx, u.Table, func(t *table) error {
		ids, err := t.unusedLists()
		for _, id := range ids {
			err = errors.Join(err, t.dropList(id))
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		return t.commit()
	})
}

// Unused is a store of what our tables have for nobody: guards of links that are gone, and subnets without addresses. It counts as the
// network's that asks.
type Unused struct{}

// Held lists it.
func (Unused) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	err = locked(ctx, hostTable, func(t *table) error {
		subnets, guards, err := t.unused()
		for _, s := range subnets {
			list = append(list, plugin.Held{Key: plugin.Key{Network: network}, What: "masquerading of nobody in " + TargetOf(s)})
		}
		for _, g := range guards {
			list = append(list, plugin.Held{Key: plugin.Key{Network: network}, What: "guard of link " + g.what + ", which is gone"})
		}
		return err
	})
	return list, err
}

// Release removes it.
func (Unused) Release(ctx context.Context, _ []plugin.Held) error {
	return locked(ctx, hostTable, func(t *table) error {
		subnets, guards, err := t.unused()
		if err != nil {
			return err
		}
		t.conn.DeleteRules(subnets)
		seen := map[string]bool{} // each version jumps to them
		for _, s := range subnets {
			if seen[TargetOf(s)] {
				continue
			}
			seen[TargetOf(s)] = true
			t.conn.DelChain(&nftables.Chain{Table: &t.Table, Name: TargetOf(s)})
			t.conn.DelSet(&nftables.Set{Table: &t.Table, Name: TargetOf(s)})
		}
		return t.replace(guards, nil)
	})
}

// unused returns the jumps to subnets without addresses, and the guards of links that are gone. A link that comes again has
// route_localnet unset, and a guard is made before it is set.
func (t *table) unused() (subnets []*nftables.Rule, guards []element, err error) {
	all, err := t.allRecords()
	if err != nil || all == nil {
		return nil, nil, err
	}
	others, err := t.chainsOfOthers()
	var jumps []*nftables.Rule
	for _, c := range append(others, &nftables.Chain{Name: chainSubnets}) {
		var rules []*nftables.Rule
		if err == nil {
			rules, err = t.conn.GetRules(&t.Table, c)
		}
		jumps = append(jumps, rules...)
	}
	inside := &nftables.Set{Table: &t.Table, Name: insideSet}
	links, err2 := t.conn.GetSetElements(inside)
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, kernelError("list what is in table "+t.String(), err)
	}
	isUsed := map[string]bool{}
	for _, records := range all {
		for _, r := range records {
			if r.kind == kindAddress {
				isUsed[subnetName(r)] = true
			}
		}
	}
	for _, r := range jumps {
		if name := TargetOf(r); !isUsed[name] && strings.HasPrefix(name, masqueradeSet) {
			subnets = append(subnets, r)
		}
	}
	for _, l := range links {
		name := unix.ByteSliceToString(l.Key)
		if _, err := sysctl.AllowsLocalhost(name); errors.Is(err, unix.ENOENT) && l.Timeout == 0 {
			guard := newElement(inside, l.Key)
			guard.what = name
			guards = append(guards, guard)
		}
	}
	return subnets, guards, nil
}
