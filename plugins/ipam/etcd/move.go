package etcd

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// Moved is what came of a move of leases.
type Moved struct {
	Moved []shared.Held
	Left  []Left
}

// Left is a lease that was not moved.
type Left struct {
	shared.Held
	Why string `json:"why"`
}

// Import takes this host's leases of host-local in a directory into etcd. An attachment of which another host has an address there stays where it
// is, and why is reported. With isCopy host-local has them, too, until a second import: so that neither hands them out while the network's file is
// exchanged.
func (n Network) Import(ctx context.Context, dir string, isCopy bool) (*Moved, error) {
	p, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	c, err := settings.Load(p.request)
	if err != nil {
		return nil, err
	}
	_, is, err := p.meet(ctx, true)
	if err == nil {
		err = p.mustWait(is.restored)
	}
	if err != nil {
		return nil, err
	}
	leases, err := lease.Dir(dir).Held(ctx, p.network)
	if err != nil {
		return nil, err
	}
	moved := &Moved{}
	for _, of := range byAttachment(leases) {
		why, err := p.importOne(ctx, of, c.Pools)
		if err == nil && why == "" && !isCopy {
			err = lease.Dir(dir).Release(ctx, of.leases)
		}
		if err != nil {
			return moved, err
		}
		note(moved, of, why)
	}
	if is, err = p.findHost(ctx); err == nil {
		err = p.sign(ctx, is)
	}
	return moved, err
}

// Export gives all that this host has of the network in etcd to host-local. With isCopy etcd has it, too, until a second export.
func (n Network) Export(ctx context.Context, dir string, isCopy bool) (*Moved, error) {
	p, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	to, err := lease.NewStore(dir, n.name, n.results)
	if err != nil {
		return nil, err
	}
	leases, err := store{p.request}.Held(ctx, n.name)
	if err != nil {
		return nil, err
	}
	moved := &Moved{}
	for _, of := range byAttachment(leases) {
		if err := to.Restore(ctx, of.key, of.addresses); err != nil {
			note(moved, of, err.Error())
			continue
		}
		if !isCopy {
			if err := p.release(ctx, of.key); err != nil {
				return moved, err
			}
		}
		note(moved, of, "")
	}
	return moved, nil
}

// attachment is what one holds, of a list.
type attachment struct {
	key       plugin.Key
	addresses []netip.Addr
	leases    []plugin.Held
}

func byAttachment(leases []plugin.Held) (list []*attachment) {
	index := map[plugin.Key]*attachment{}
	for _, h := range leases {
		of := index[h.Key]
		if of == nil {
			of = &attachment{key: h.Key}
			index[h.Key], list = of, append(list, of)
		}
		of.addresses, of.leases = append(of.addresses, addressOf(h)), append(of.leases, h)
	}
	return list
}

func addressOf(h plugin.Held) netip.Addr {
	if l, ok := h.Own.(lease.Lease); ok {
		return l.Address
	}
	return h.Own.(netip.Addr)
}

func note(moved *Moved, of *attachment, why string) {
	for _, a := range of.addresses {
		h := shared.Held{ContainerID: of.key.ContainerID, IfName: of.key.IfName, Address: a}
		if why != "" {
			moved.Left = append(moved.Left, Left{Held: h, Why: why})
			continue
		}
		moved.Moved = append(moved.Moved, h)
	}
}

// importOne takes an attachment's addresses into etcd, all or none, and says why not.
func (p *pool) importOne(ctx context.Context, of *attachment, pools []ranges.Pool) (why string, err error) {
	if of.key.ContainerID == "" || of.key.IfName == "" {
		return "its file does not say which container and interface it is of", nil
	}
	for _, a := range of.addresses {
		if !slices.ContainsFunc(pools, func(each ranges.Pool) bool { return each.Contains(a) }) {
			return a.String() + " is in none of the network's ranges", nil
		}
	}
	ctx, end := context.WithTimeout(ctx, p.Timeout)
	defer end()
	lock, isOpen, err := p.Claim(ctx, of.key)
	if err != nil {
		return "", p.Failed(err)
	}
	defer lock.Release()
	if has, known := p.ReadHeld(of.key); known && !isOpen {
		if isSame(has.Addresses, of.addresses) { // an import before this one has taken them
			return "", state.Remove(p.OpenFile(of.key))
		}
		return "it has others in etcd already: " + text(has.Addresses), state.Remove(p.OpenFile(of.key))
	}
	began, err := p.Begin(of.key, time.Now())
	if err != nil {
		return "", p.Failed(err)
	}
	on, err := p.hostLease(ctx)
	has := notes.Held{Addresses: of.addresses, Since: began, Unsure: true} // this is noted before it is known whether an answer is lost
	if err == nil {
		err = p.WriteHeld(of.key, has)
	}
	if err != nil {
		return "", p.Failed(err)
	}
	lost, err := p.takeSome(ctx, []plugin.Key{of.key}, on, p.isCurrent(p.ReadSeen(p.Host))...)
	if err != nil || len(lost) > 0 {
		return strings.Join(lost[of.key], ", "), errors.Join(err, p.finish(ctx, of.key, has))
	}
	return "", state.Remove(p.OpenFile(of.key))
}

// isSame reports whether two lists have the same addresses.
func isSame(a, b []netip.Addr) bool {
	a, b = slices.SortedFunc(slices.Values(a), netip.Addr.Compare), slices.SortedFunc(slices.Values(b), netip.Addr.Compare)
	return slices.Equal(a, b)
}
