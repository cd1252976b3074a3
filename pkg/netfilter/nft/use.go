package nft

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Use is what attachments have one of our tables for. It comes with what one of them needs, which matters to Add and Check. What was
// made is found again by the attachment's key alone. What Del and GC do not find is gone, and no error; neither ever removes what
// belongs to another attachment by now.
type Use struct {
	*table
	name  string // in the IDs of owners
	kinds []kind // of their records

	records []record // what is needed
	err     error    // why that can't be had

	before func(context.Context) error        // begins Add
	after  func(context.Context, owner) error // ends Add, still under the lock
	also   func(owner) error                  // ends Check
	sweep  func() error                       // ends GC
}

// Add gives the attachment what it needs, in place of what it has.
func (u Use) Add(ctx context.Context, key plugin.Key) error {
	err := u.err
	if err == nil && u.before != nil {
		err = u.before(ctx)
	}
	if err != nil {
		return err
	}
	o := ownerOf(key, u.name)
	return Locked(ctx, func() error {
		err := u.hold(o, u.records)
		if err == nil && u.after != nil {
			if err = u.after(ctx, o); err != nil {
				_, undo := u.release(o)
				err = errors.Join(err, undo)
			}
		}
		return err
	})
}

// Del takes back what the attachment has, and returns the published ports among it. Packets may match it for some milliseconds more, but
// for those to ports of a protocol whose connections have no end of their own: they may be cut when it returns.
func (u Use) Del(ctx context.Context, key plugin.Key) (maps []netfilter.PortMap, err error) {
	var removed []element
	err = Locked(ctx, func() (err error) {
		removed, err = u.release(ownerOf(key, u.name))
		return err
	})
	for _, e := range removed {
		if e.set.IsMap && e.set != u.owners {
			e.record.target = parseTarget(e.data)
			maps = append(maps, e.record.portMap())
		}
	}
	if err == nil && slices.ContainsFunc(maps, func(m netfilter.PortMap) bool { return m.Protocol != unix.IPPROTO_TCP }) {
		_, err = u.lookWhenExpired(removed)
	}
	return maps, err
}

// Check compares what the attachment has with what it needs.
func (u Use) Check(key plugin.Key) error {
	if u.err != nil {
		return u.err
	}
	o := ownerOf(key, u.name)
	if err := u.check(o, u.records); err != nil || u.also == nil {
		return err
	}
	return u.also(o)
}

// GC takes back what attachments of the network have that are not valid, and waits until no packet matches it.
func (u Use) GC(ctx context.Context, network string, valid []plugin.Key) error {
	made, err := u.isMade()
	if err != nil || !made {
		return err
	}
	err = u.collect(ctx, network, u, valid)
	if u.sweep == nil {
		return err
	}
	return errors.Join(err, Locked(ctx, u.sweep))
}

// Available tries whether the kernel takes the table, without leaving anything in it.
func (u Use) Available() error { return u.available() }
