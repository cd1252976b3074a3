package firewalld

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Zone accepts what containers send by making their addresses sources of one of
// firewalld's zones. It does not look at Forward.AdminChain and Forward.Ingress,
// for which firewalld has nothing.
type Zone struct {
	Name string // such as trusted, which accepts all packets
}

// check refuses a name that firewalld does not have and that the file or the
// bus could not hold.
func (z Zone) check() error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	if z.Name == "" || strings.ContainsFunc(z.Name, strange) {
		return plugin.ConfigError("name one that `firewall-cmd --get-zones` lists", "%q is not the name of a zone of firewalld", z.Name)
	}
	return nil
}

// AddForward makes the addresses sources of the zone, in place of what the attachment had. An address that another attachment
// was given before, in whatever zone, passes to this one.
func (z Zone) AddForward(ctx context.Context, key plugin.Key, f spec.Forward) error {
	if err := z.check(); err != nil {
		return err
	}
	var added []holding
	for _, addr := range f.Addrs {
		added = append(added, holding{addr, z.Name, key})
	}
	lost := func(h holding) bool { return h.key == key || slices.Contains(f.Addrs, h.addr) }
	if err := exchange(ctx, lost, nil, added); err != nil {
		return errors.Join(notRunning(err), z.DelForward(context.WithoutCancel(ctx), key, nil))
	}
	return nil
}

// DelForward takes that back. The hint is for what the reference plugins made: addresses that no attachment of ours was given leave
// the zone. That one is in it is not taken for granted: without an answer, none is.
func (z Zone) DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	list, err := readRecord()
	if err != nil {
		return err
	}
	var foreign []holding
	for _, p := range hint {
		if z.check() != nil || slices.ContainsFunc(list, has(p.Addr())) {
			continue
		}
		zone, err := zoneOf(ctx, p.Addr())
		if err != nil {
			break
		}
		if zone == z.Name {
			foreign = append(foreign, holding{p.Addr(), z.Name, key})
		}
	}
	return exchange(ctx, func(h holding) bool { return h.key == key }, foreign, nil)
}

// GCForward takes it back from attachments of the network that are not valid.
func (z Zone) GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	isValid := map[plugin.Key]bool{}
	for _, k := range valid {
		isValid[k] = true
	}
	lost := func(h holding) bool { return h.key.Network == network && !isValid[h.key] }
	return exchange(ctx, lost, nil, nil)
}

// exchange takes what is lost out of its zones, and then out of the record; what is foreign too, but for addresses in the record.
// It writes down what is added, and then adds it. Without anything to do it asks nobody.
func exchange(ctx context.Context, lost func(holding) bool, foreign, added []holding) error {
	list, err := readRecord()
	if err != nil || len(foreign)+len(added) == 0 && !slices.ContainsFunc(list, lost) {
		return err
	}
	// Before others have to wait for the answer, and before anything is written down that could not be undone.
	if _, err := Running(ctx); err != nil {
		return err
	}
	return state.Locked(ctx, stateDir+"/lock", func() error {
		list, err := readRecord()
		if err != nil {
			return err
		}
		for _, h := range foreign {
			if !slices.ContainsFunc(list, has(h.addr)) {
				list = append(list, h)
			}
		}
		var errs []error
		list = slices.DeleteFunc(list, func(h holding) bool {
			if !lost(h) || ctx.Err() != nil {
				return false
			}
			stays := slices.ContainsFunc(added, func(a holding) bool { return a.addr == h.addr && a.zone == h.zone })
			if stays {
				return true
			}
			err := removeSource(ctx, h.zone, h.addr)
			errs = append(errs, err)
			return err == nil
		})
		err = errors.Join(append(errs, context.Cause(ctx), writeRecord(append(list, added...)))...)
		for _, h := range added {
			if err == nil {
				err = addSource(ctx, h.zone, h.addr)
			}
		}
		return err
	})
}

// has returns a function that reports whether a holding is of the address.
func has(addr netip.Addr) func(holding) bool {
	return func(h holding) bool { return h.addr == addr }
}

// CheckForward compares what is there with what AddForward makes.
func (z Zone) CheckForward(ctx context.Context, key plugin.Key, f spec.Forward) error {
	if err := z.check(); err != nil {
		return err
	}
	list, err := readRecord()
	if err != nil {
		return err
	}
	for _, addr := range f.Addrs {
		if i := slices.IndexFunc(list, has(addr)); i >= 0 && list[i].key != key {
			return plugin.Errorf("two containers have one address: restart this one",
				"%s in firewalld's zone %s belongs to %s", source(addr), list[i].zone, list[i].key)
		}
		zone, err := zoneOf(ctx, addr)
		if err != nil {
			return notRunning(err)
		}
		if zone != z.Name {
			where := "no zone"
			if zone != "" {
				where = "zone " + zone
			}
			return plugin.Errorf(fmt.Sprintf("firewalld forgets the sources of containers when it is reloaded or restarted: "+
				"add it again with `firewall-cmd --zone=%s --change-source=%s`, or restart the container", z.Name, source(addr)),
				"%s is not a source of firewalld's zone %s: it is in %s", source(addr), z.Name, where)
		}
	}
	return nil
}

// notRunning says what to do when firewalld is needed and not there.
func notRunning(err error) error {
	if !errors.Is(err, errNotRunning) {
		return err
	}
	return plugin.Errorf("start it with `systemctl start firewalld`, or set another \"backend\" of the firewall plugin", "%v", err)
}
