package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// release takes away what the owner has, except what has passed to another one,
// and returns the published ports among it. Elements may match until the kernel's
// next tick: gone waits for that.
func (t *table) release(ctx context.Context, o owner) (ports []claim, gone func() error, err error) {
	gone = func() error { return nil }
	err = t.change(ctx, "remove what "+o.comment+" has", func() error {
		records, err := t.held(o)
		if err != nil || len(records) == 0 {
			return err
		}
		own, err := t.removalOf(o, records)
		if err != nil || len(own.elements) == 0 {
			return err
		}
		if err := forbidLocalhost(records); err != nil {
			return err
		}
		t.removeRules(own.rules)
		ports = t.portsAmong(records, own.elements)
		gone, err = t.takeAway(o, own.elements)
		return err
	})
	return ports, gone, err
}

// shortest is the shortest timeout of an element. The kernel makes its next tick
// of it, and one that comes next is the first.
const shortest = time.Millisecond

// takeAway takes elements out of their sets, and commits the transaction.
//
// Where the kernel can, it lets them expire. To remove them makes everybody who
// uses nf_tables wait: the kernel waits for all packets under way before it frees
// them, and whoever closes a socket of nf_tables waits with it.
func (t *table) takeAway(o owner, elements []element) (gone func() error, err error) {
	gone = func() error { return nil }
	what := "remove what " + o.comment + " has in table " + t.String()
	if !canExpire() {
		t.remove(elements)
		return gone, t.conn.commit(what)
	}
	t.add(elements, shortest)
	if err := t.conn.commit(what); err != nil {
		return gone, err
	}
	there, err := t.look(elements[:1])
	if err != nil {
		return gone, err
	}
	if there[0].there && !there[0].expiring { // the kernel said that it can, and did not
		t.remove(elements)
		return gone, t.conn.commit(what)
	}
	return func() error {
		_, err := t.lookWhenExpired(elements)
		return err
	}, nil
}

// canExpire reports whether the kernel can give a timeout to an element that is
// there, as Linux 6.12 and later can. Earlier ones answer as if they could.
func canExpire() bool {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // can't fail
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(kernel.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 12)
}

// portsAmong returns the claims of records whose published port is among elements.
func (t *table) portsAmong(records []record, elements []element) []claim {
	data := map[string][]byte{}
	for _, e := range elements {
		data[e.id()] = e.data
	}
	var ports []claim
	for _, r := range records {
		if r.kind != kindPort {
			continue
		}
		if d, ok := data[t.elements(r)[0].id()]; ok {
			ports = append(ports, claim{r, d})
		}
	}
	return ports
}

// collect releases what attachments of a network have for a use and are not
// valid, and waits until nothing of it matches.
func (t *table) collect(ctx context.Context, network, use string, valid []plugin.Key) error {
	there, err := t.conn.HasTables(t.table)
	if err != nil || !there[0] {
		return err
	}
	var holdings []holding
	err = Locked(ctx, func() (err error) { // a list that is interrupted by a change may lack something
		holdings, err = t.holdings()
		return err
	})
	if err != nil {
		return err
	}
	hash := plugin.NetworkHash(network)
	var errs []error
	last := func() error { return nil } // what was taken away last is gone last
	for _, h := range holdings {
		isOfNetwork := [8]byte(h.id[:8]) == hash &&
			(strings.HasPrefix(h.comment, comment(network+"/")) || len(h.comment) == plugin.MaxKeyText)
		isValid := slices.ContainsFunc(valid, func(k plugin.Key) bool { return k.ID(use) == h.id })
		if h.first && h.record.kind.use() == use && isOfNetwork && !isValid {
			_, gone, err := t.release(ctx, h.owner)
			errs, last = append(errs, err), gone
		}
	}
	return errors.Join(append(errs, last())...)
}
