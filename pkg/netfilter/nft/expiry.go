package nft

import (
	"hash/fnv"

	"golang.org/x/sys/unix"

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
// A kernel that can't let elements expire answers as if it did. So the first DEL
// removes, and in the same transaction adds two elements to the set of
// trials and lets one of them expire. Later DELs look whether it has, with the
// message by which they look at their own elements.
//
// A trial counts for the kernel that it was made with, since a saved ruleset
// may be loaded by another one.
//
//	set trials_v2 {
//		type mark . mark
//		flags timeout
//		elements = { 0x5b1c9e02 . 0x00000000 comment "6.1.0-37-amd64 was told to let the other element expire",
//			     0x5b1c9e02 . 0x00000001 comment "6.1.0-37-amd64 does not let elements expire" }
//	}
var trials = nftables.Set{
	Table:    table,
	Name:     "trials" + version,
	Key:      []nftables.Type{nftables.TypeMark, nftables.TypeMark},
	Expiring: true,
}

// trial returns the two elements of this kernel's trial: the one that says that
// it was made, and the one that expires if the kernel can do that.
func trial() (made, left nftables.Element) {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // can't fail
	release := unix.ByteSliceToString(kernel.Release[:])
	hash := fnv.New32a()
	_, _ = hash.Write(append(kernel.Release[:], kernel.Version[:]...))
	element := func(n uint32, comment string) nftables.Element {
		return nftables.Element{
			Set:     &trials,
			Key:     nftables.Join(nftables.Native(hash.Sum32()), nftables.Native(n)),
			Comment: release + comment,
			Stage:   tryExpiry,
			What:    "the trial of " + release,
		}
	}
	return element(0, " was told to let the other element expire"), element(1, " does not let elements expire")
}

// removal is a way to take elements out of sets.
type removal struct {
	expire   bool // rather than remove
	withdraw bool // … and withdraw their keys
	try      bool // make the trial too
}

// removalBy returns the way that the elements of the trial tell.
func removalBy(made, left nftables.Found) removal {
	expire := made.There && !left.There
	return removal{expire: expire, withdraw: expire, try: !made.There}
}

// transaction takes elements away, of which some have keys to withdraw.
func (r removal) transaction(elements, keys []nftables.Element) *nftables.Transaction {
	tx := &nftables.Transaction{}
	if r.withdraw {
		tx.AddUntilTick(withdrawElements, keys)
	}
	if r.expire {
		tx.ExpireElements(expireElements, elements)
	} else {
		tx.RemoveElements(removeElements, elements)
	}
	if r.try {
		made, left := trial()
		tx.AddElements([]nftables.Element{made, left})
		tx.ExpireElements(tryExpiry, []nftables.Element{left})
	}
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
	// What the transaction came to last expires last, and the first key first.
	ask := []nftables.Element{elements[len(elements)-1]}
	if len(keys) > 0 {
		ask = append(ask, keys[0])
	}
	for range nftables.Tries {
		since := nftables.Clock()
		left, err := t.conn.Remaining(ask...)
		if err != nil {
			return err
		}
		// A tick between the two looks makes the element seem to have more time
		// left than the key, never less.
		if left[0] == 0 || len(keys) > 0 && left[0] <= left[1] {
			return nil
		}
		nftables.AwaitTick(since)
	}
	return contended("let elements expire in table inet "+TableName, nftables.ErrBusy)
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
