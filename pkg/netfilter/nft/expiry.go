package nft

import (
	"context"
	"hash/fnv"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
)

// What an attachment gives back expires instead of being removed, where the
// kernel can do that: removing makes everybody who uses nf_tables wait (see
// nftables.ExpireElements). A kernel that can't answers as if it did. So the
// first DEL removes, and in the same transaction adds two elements to the set of
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
	expire bool // rather than remove
	try    bool // make the trial too
}

// removalBy returns the way that the elements of the trial tell.
func removalBy(made, left nftables.Found) removal {
	return removal{expire: made.There && !left.There, try: !made.There}
}

// transaction takes elements away.
func (r removal) transaction(elements []nftables.Element) *nftables.Transaction {
	tx := &nftables.Transaction{}
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

// awaitExpiry waits until what was released does not match any more, unless
// somebody else does that under this context.
func (t *Table) awaitExpiry(ctx context.Context) {
	if t.expiring {
		netfilter.Expiring(ctx)
		t.expiring = false
	}
}
