package nft

import (
	"errors"

	"github.com/cnibox/cnibox/pkg/netfilter/expiry"
	"github.com/cnibox/cnibox/pkg/nftables"
)

// What an attachment gives back expires instead of being removed, where the
// kernel can do that: removing makes everybody who uses nf_tables wait (see
// nftables.ExpireElements).
//
// An element that is to expire matches until the kernel's next tick, 1 to 10 ms
// later. So the keys of published ports and masqueraded addresses are withdrawn
// by the same transaction: put into a set, named gone, that makes the rule pass
// them by, and which they leave when the elements expire. The order of things
// makes that exact:
//
//   - A rule looks at the gone set first. A packet that does not find its key
//     there since that has expired does not find the element either.
//   - In the transaction the keys come first. So they never expire later than the
//     elements, and an ADD, which the element that is to expire is in the way of
//     (hold waits for the tick), finds that its key is not withdrawn either.
//   - They expire earlier only if the tick came just between the two. So DEL asks
//     for the time that both have left, and waits if they differ.
//
// The question is a message of 7 µs; to wait each time took 3.8 ms (HZ=250, DEL
// behind DEL). What else expires sets marks, which matter behind a DNAT alone: a
// connection to the address that a port was published on may be masqueraded until
// the tick if another attachment publishes the port on all.
//
// Whether the kernel can do that is found out by a trial (see expiry), in a set of
// the table.
var trials = nftables.Set{
	Table:    table,
	Name:     "trials" + version,
	Key:      []nftables.Type{nftables.TypeMark, nftables.TypeMark},
	Expiring: true,
}

// takeAway takes elements away, and withdraws keys of what expires.
func takeAway(way expiry.Way, elements, keys []nftables.Element) *nftables.Transaction {
	tx := &nftables.Transaction{}
	tx.AddUntilTick(withdrawElements, keys)
	way.Take(tx, elements, &trials, expiry.Stages{Remove: removeElements, Expire: expireElements, Try: tryExpiry})
	return tx
}

// withdrawals returns the keys to withdraw for those records whose element that
// matters is among some.
func withdrawals(records []record, among []nftables.Element) []nftables.Element {
	present := make(map[string]bool, len(among))
	for i := range among {
		present[among[i].ID()] = true
	}
	var keys []nftables.Element
	for _, r := range records {
		if present[r.elements()[0].ID()] {
			keys = append(keys, r.withdrawal())
		}
	}
	return nftables.BySet(nftables.Distinct(keys))
}

// settle waits until nothing matches any more of what was just let expire, with
// the keys withdrawn that are given.
func (t *Table) settle(elements, keys []nftables.Element) error {
	err := expiry.Settle(t.conn, elements, keys)
	if errors.Is(err, nftables.ErrBusy) {
		return contended("let elements expire in table inet "+TableName, err)
	}
	return err
}

// awaitExpiry waits for the tick if the first of claims has just been given back.
// One element stands for all: in the way is mostly what a DEL of the same
// container let expire, and the transaction will tell if another one is.
//
// Such an ADD would succeed without that, but have everybody wait: after a
// transaction that fails the kernel waits for all packets under way, 15 ms, and
// the next one with it. The question takes 5 µs.
func (t *Table) awaitExpiry(claims []claim) {
	if len(claims) == 0 {
		return
	}
	left, err := t.conn.Remaining(claims[0].record.elements()[0])
	if err == nil && left[0] > 0 { // what else may be wrong, the transaction tells
		nftables.AwaitTick(nftables.Clock())
	}
}
