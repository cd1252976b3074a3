package firewalld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Zone is the name of one of firewalld's zones, such as trusted, which accepts all packets.
type Zone string

// check refuses a name that firewalld does not have and that the file or the bus could not hold.
func (z Zone) check() error {
	isStrange := func(r rune) bool { return r <= ' ' || r > '~' }
	if z == "" || strings.ContainsFunc(string(z), isStrange) {
		return plugin.ConfigError("name one that `firewall-cmd --get-zones` lists", "%q is not the name of a zone of firewalld", string(z))
	}
	return nil
}

// Add makes addresses sources of the zone, in place of what the attachment had. An address that another attachment was given before, in
// whatever zone, passes to this one.
func (z Zone) Add(ctx context.Context, key plugin.Key, addrs []netip.Addr) error {
	if err := z.check(); err != nil {
		return err
	}
	var added []holding
	for _, addr := range addrs {
		added = append(added, holding{addr, z, key})
	}
	if err := exchange(ctx, map[plugin.Key]bool{key: true}, nil, added); err != nil {
		return errors.Join(notRunning(err), z.Del(context.WithoutCancel(ctx), key, nil))
	}
	return nil
}

// Repair adds the addresses that have left the zone, but for those that another attachment has by now.
func (z Zone) Repair(ctx context.Context, key plugin.Key, addrs []netip.Addr) error {
	list, err := readRecord()
	if err == nil {
		err = cmp.Or(z.check(), isOwn(list, key, addrs))
	}
	if err != nil {
		return err
	}
	var added []holding
	for _, addr := range addrs {
		added = append(added, holding{addr, z, key})
	}
	return notRunning(exchange(ctx, map[plugin.Key]bool{key: true}, nil, added))
}

// isOwn returns an error if another attachment has one of the addresses.
func isOwn(list []holding, key plugin.Key, addrs []netip.Addr) error {
	for _, addr := range addrs {
		if i := indexOf(list, addr); i >= 0 && list[i].key != key {
			return plugin.Errorf("two containers have one address: restart this one",
				"%s in firewalld's zone %s belongs to %s", source(addr), list[i].zone, list[i].key)
		}
	}
	return nil
}

// Del takes that back, from whatever zone. The hint is for what the reference plugins made: addresses that no attachment of ours was given
// leave this zone. That one is in it is not taken for granted: without an answer, none is.
func (z Zone) Del(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	list, err := readRecord()
	if err != nil {
		return err
	}
	var foreign []holding
	for _, p := range hint {
		if z.check() != nil || indexOf(list, p.Addr()) >= 0 {
			continue
		}
		zone, err := zoneOf(ctx, p.Addr())
		if err != nil {
			break
		}
		if zone == z {
			foreign = append(foreign, holding{p.Addr(), z, key})
		}
	}
	return exchange(ctx, map[plugin.Key]bool{key: true}, foreign, nil)
}

// exchange takes what some owners have out of its zones, and then out of the record; so it does with what is foreign, but for addresses in
// the record, and with what others had of what is added. It writes down what is added, and then adds it; what firewalld refuses is not
// written down any more. Without anything to do it asks nobody.
func exchange(ctx context.Context, owners map[plugin.Key]bool, foreign, added []holding) error {
	goes := func(h holding) bool { return owners[h.key] || indexOf(added, h.addr) >= 0 }
	list, err := readRecord()
	if err != nil || len(foreign)+len(added) == 0 && !slices.ContainsFunc(list, goes) {
		return err
	}
	// Before others have to wait for the answer, and before anything is written down that could not be undone.
	if _, err := Running(ctx); err != nil {
		return err
	}
	return state.Locked(ctx, lockFile, func() error {
		list, err := readRecord()
		if err != nil {
			return err
		}
		for _, h := range foreign {
			if indexOf(list, h.addr) < 0 {
				list = append(list, h)
			}
		}
		var errs []error
		list = slices.DeleteFunc(list, func(h holding) bool {
			if !goes(h) || ctx.Err() != nil {
				return false
			}
			if i := indexOf(added, h.addr); i >= 0 && added[i].zone == h.zone {
				return true
			}
			err := removeSource(ctx, h.zone, h.addr)
			errs = append(errs, err)
			return err == nil
		})
		err = errors.Join(append(errs, context.Cause(ctx), writeRecord(append(list, added...)))...)
		for i, h := range added {
			if err == nil {
				err = addSource(ctx, h.zone, h.addr)
			}
			if errors.Is(err, ErrRefused) {
				return errors.Join(err, writeRecord(append(list, added[:i]...)))
			}
		}
		return err
	})
}

// Check compares what is there with what Add makes.
func (z Zone) Check(ctx context.Context, key plugin.Key, addrs []netip.Addr) error {
	if err := z.check(); err != nil {
		return err
	}
	list, err := readRecord()
	if err == nil {
		err = isOwn(list, key, addrs)
	}
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		zone, err := zoneOf(ctx, addr)
		if err != nil {
			return notRunning(err)
		}
		if zone != z {
			where := "no zone"
			if zone != "" {
				where = "zone " + string(zone)
			}
			return plugin.Errorf(fmt.Sprintf("firewalld forgets the sources of containers when it is reloaded or restarted: "+
				"add it again with `cnictl repair`, or `firewall-cmd --zone=%s --change-source=%s`", z, source(addr)),
				"%s is not a source of firewalld's zone %s: it is in %s", source(addr), z, where)
		}
	}
	return nil
}

// notRunning says what to do when firewalld is needed and not there.
func notRunning(err error) error {
	if !errors.Is(err, errNotRunning) {
		return err
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "start it with `systemctl start firewalld`, or set another \"backend\" of the firewall plugin", "%v", err)
}

// Source is an address in a zone.
type Source struct {
	Address netip.Addr
	Zone    Zone
	Key     plugin.Key // whose it is
}

// String returns the address as firewalld is given it.
func (s Source) String() string { return source(s.Address) }

// Lost returns the sources that attachments were given, and that are in no zone any more, as after a reload.
func Lost(ctx context.Context) (list []Source, err error) {
	record, err := readRecord()
	for _, h := range record {
		zone, wrong := zoneOf(ctx, h.addr)
		if wrong != nil {
			return list, wrong
		}
		if zone == "" {
			list = append(list, Source{h.addr, h.zone, h.key})
		}
	}
	return list, err
}

// Sources is the store of what attachments have in zones. It implements plugin.Store.
type Sources struct{}

// Held lists it.
func (Sources) Held(context.Context, string) (list []plugin.Held, err error) {
	record, err := readRecord()
	for _, h := range record {
		what := fmt.Sprintf("source %s of firewalld's zone %s", source(h.addr), h.zone)
		list = append(list, plugin.Held{Key: h.key, Owner: h.key.String(), What: what})
	}
	return list, err
}

// Release takes it back.
func (Sources) Release(ctx context.Context, list []plugin.Held) error {
	owners := map[plugin.Key]bool{}
	for _, h := range list {
		owners[h.Key] = true
	}
	return exchange(ctx, owners, nil, nil)
}
