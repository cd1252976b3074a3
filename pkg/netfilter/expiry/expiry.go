// Package expiry takes elements out of nftables sets. Where the kernel can do
// that it lets them expire, since removing makes everybody who uses nf_tables
// wait (see nftables.ExpireElements).
//
// A kernel that can't let elements expire answers as if it did. So the first DEL
// removes, and in the same transaction adds two elements to the table's set of
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
package expiry

import (
	"hash/fnv"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// Trial returns the two elements of this kernel's trial in a set of trials: the
// one that says that it was made, and the one that expires if the kernel can do
// that.
func Trial(trials *nftables.Set, at nftables.Stage) (made, left nftables.Element) {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // can't fail
	release := unix.ByteSliceToString(kernel.Release[:])
	hash := fnv.New32a()
	_, _ = hash.Write(append(kernel.Release[:], kernel.Version[:]...))
	element := func(n uint32, comment string) nftables.Element {
		return nftables.Element{
			Set:     trials,
			Key:     nftables.Join(nftables.Native(hash.Sum32()), nftables.Native(n)),
			Comment: release + comment,
			Stage:   at,
			What:    "the trial of " + release,
		}
	}
	return element(0, " was told to let the other element expire"), element(1, " does not let elements expire")
}

// Way is a way to take elements out of sets.
type Way struct {
	Expire bool // rather than remove
	Try    bool // make the trial too
}

// WayBy returns the way that the elements of the trial tell.
func WayBy(made, left nftables.Found) Way {
	return Way{Expire: made.There && !left.There, Try: !made.There}
}

// Except returns the way without what the kernel has refused.
func (w Way) Except(refused Way) Way {
	return Way{Expire: w.Expire && !refused.Expire, Try: w.Try && !refused.Try}
}

// Stages are those of a transaction that takes elements away.
type Stages struct{ Remove, Expire, Try nftables.Stage }

// Take takes elements away.
func (w Way) Take(tx *nftables.Transaction, elements []nftables.Element, trials *nftables.Set, at Stages) {
	if w.Expire {
		tx.ExpireElements(at.Expire, elements)
	} else {
		tx.RemoveElements(at.Remove, elements)
	}
	if w.Try {
		made, left := Trial(trials, at.Try)
		tx.AddElements([]nftables.Element{made, left})
		tx.ExpireElements(at.Try, []nftables.Element{left})
	}
}

// Settle waits until nothing matches any more of elements that were just let
// expire by one transaction, in this order. Elements that rules look at first,
// put in by that transaction for as long, make them count as gone. The error is
// nftables.ErrBusy if others let the same elements expire all the time.
func Settle(c *nftables.Conn, elements, withdrawn []nftables.Element) error {
	// What the transaction came to last expires last, and what it came to first
	// expires first.
	ask := []nftables.Element{elements[len(elements)-1]}
	if len(withdrawn) > 0 {
		ask = append(ask, withdrawn[0])
	}
	for range nftables.Tries {
		since := nftables.Clock()
		left, err := c.Remaining(ask...)
		if err != nil {
			return err
		}
		// A tick between the two looks makes the element seem to have more time
		// left than the key, never less.
		if left[0] == 0 || len(withdrawn) > 0 && left[0] <= left[1] {
			return nil
		}
		nftables.AwaitTick(since)
	}
	return nftables.ErrBusy
}
