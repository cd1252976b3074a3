package firewalld

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Zone accepts what containers send by making their addresses sources of one of
// firewalld's zones. It does not look at Forward.AdminChain and Forward.Ingress,
// for which firewalld has nothing.
type Zone struct {
	Name string // such as trusted, which accepts all packets
}

var _ netfilter.Forwarder = Zone{}

// check refuses a name that firewalld does not have and that the files or the
// bus could not hold.
func (z Zone) check() error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	if z.Name == "" || strings.ContainsFunc(z.Name, strange) {
		return plugin.ConfigError("name one that `firewall-cmd --get-zones` lists", "%q is not the name of a zone of firewalld", z.Name)
	}
	return nil
}

// AddForward implements netfilter.Forwarder. An address that another attachment
// was given before, in whatever zone, passes to this one.
func (z Zone) AddForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	if err := z.check(); err != nil {
		return err
	}
	l, err := lock(ctx)
	if err != nil {
		return err
	}
	defer l.Release()
	a := attachmentOf(key)
	if err := a.release(ctx); err != nil || len(f.Addrs) == 0 {
		return err
	}
	c, err := Open(ctx)
	if err != nil {
		return notRunning(err)
	}
	defer c.Close()
	r := record{attachment: a.key, zone: z.Name, addresses: f.Addrs}
	if err := r.write(a.path()); err != nil {
		return err
	}
	for _, addr := range f.Addrs {
		if err := a.take(c, addr, z.Name); err != nil {
			return errors.Join(err, a.release(context.WithoutCancel(ctx)))
		}
	}
	return nil
}

// take makes an address the attachment's and a source of the zone.
func (a attachment) take(c *Client, addr netip.Addr, zone string) error {
	before, _, err := readRecord(addressPath(addr))
	if err != nil {
		return err
	}
	if err := (record{attachment: a.key, zone: zone}).write(addressPath(addr)); err != nil {
		return err
	}
	err = c.AddSource(zone, source(addr))
	var conflict *conflictError
	if errors.As(err, &conflict) && conflict.zone == before.zone { // where one of ours put it
		if err := c.RemoveSource(conflict.zone, source(addr)); err != nil {
			return err
		}
		return c.AddSource(zone, source(addr))
	}
	return err
}

// source is how the reference plugins write an address, which firewalld keeps
// apart from the same one written differently.
func source(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// DelForward implements netfilter.Forwarder. The hint is for what the reference
// plugins made: addresses that no attachment of ours was given leave the zone.
func (z Zone) DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	a := attachmentOf(key)
	_, found, err := a.record()
	if err != nil {
		return err
	}
	if !found {
		return z.removeForeign(ctx, hint)
	}
	l, err := lock(ctx)
	if err != nil {
		return err
	}
	defer l.Release()
	return a.release(ctx)
}

// removeForeign takes addresses out of the zone that are nobody's.
func (z Zone) removeForeign(ctx context.Context, hint []netip.Prefix) error {
	if len(hint) == 0 || z.check() != nil {
		return nil
	}
	l, err := lock(ctx)
	if err != nil {
		return err
	}
	defer l.Release()
	c, err := Open(ctx)
	if errors.Is(err, ErrNotRunning) {
		return nil // it has taken its sources with it
	}
	if err != nil {
		return err
	}
	defer c.Close()
	var errs []error
	for _, p := range hint {
		_, owned, err := readRecord(addressPath(p.Addr()))
		if err == nil && !owned {
			err = c.RemoveSource(z.Name, source(p.Addr()))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// release removes the attachment's sources, but those that are another one's by
// now, and then its file. The lock is held.
func (a attachment) release(ctx context.Context) error {
	r, found, err := a.record()
	if err != nil || !found {
		return err
	}
	c, err := Open(ctx)
	switch {
	case errors.Is(err, ErrNotRunning):
		c = nil // it has taken its sources with it
	case err != nil:
		return err
	default:
		defer c.Close()
	}
	var errs []error
	for _, addr := range r.addresses {
		errs = append(errs, a.drop(c, addr, r.zone))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return remove(a.path())
}

// drop takes an address out of the zone if it is not another attachment's. c is
// nil if there is no firewalld.
func (a attachment) drop(c *Client, addr netip.Addr, zone string) error {
	owner, found, err := readRecord(addressPath(addr))
	if err != nil {
		return err
	}
	if found && owner.attachment != a.key {
		return nil
	}
	if c != nil {
		err = c.RemoveSource(zone, source(addr))
	}
	if err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	return remove(addressPath(addr))
}

// CheckForward implements netfilter.Forwarder.
func (z Zone) CheckForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	if err := z.check(); err != nil {
		return err
	}
	c, err := Open(ctx)
	if err != nil {
		return notRunning(err)
	}
	defer c.Close()
	for _, addr := range f.Addrs {
		owner, found, err := readRecord(addressPath(addr))
		if err != nil {
			return err
		}
		if found && owner.attachment != key.String() {
			return plugin.Errorf("two containers have one address: restart this one", "%s in firewalld's zone %s belongs to %s", source(addr), owner.zone, owner.attachment)
		}
		if err := z.checkSource(c, source(addr)); err != nil {
			return err
		}
	}
	return nil
}

func (z Zone) checkSource(c *Client, source string) error {
	is, err := c.QuerySource(z.Name, source)
	if is || err != nil {
		return err
	}
	where := "it is in no zone"
	other, err := c.ZoneOfSource(source)
	if err != nil {
		return err
	}
	if other != "" {
		where = "it is in zone " + other
	}
	return plugin.Errorf(fmt.Sprintf("firewalld forgets the sources of containers when it is reloaded or restarted: "+
		"add it again with `firewall-cmd --zone=%s --change-source=%s`, or restart the container", z.Name, source), "%s is not a source of firewalld's zone %s: %s", source, z.Name, where)
}

// GCForward implements netfilter.Forwarder.
func (z Zone) GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	list, err := attachmentsOf(network)
	if err != nil {
		return err
	}
	var keep []attachment
	for _, k := range valid {
		keep = append(keep, attachmentOf(k))
	}
	list = slices.DeleteFunc(list, func(a attachment) bool { return slices.Contains(keep, a) })
	if len(list) == 0 {
		return nil
	}
	l, err := lock(ctx)
	if err != nil {
		return err
	}
	defer l.Release()
	var errs []error
	for _, a := range list {
		if err := context.Cause(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, a.release(ctx))
	}
	return errors.Join(errs...)
}

// notRunning says what to do when firewalld is needed and not there.
func notRunning(err error) error {
	if !errors.Is(err, ErrNotRunning) {
		return err
	}
	return plugin.Errorf("start it with `systemctl start firewalld`, or set another \"backend\" of the firewall plugin", "%v", err)
}
