package bridgefilter

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The reference bridge plugin has two chains for each attachment with
// macspoofchk, in table bridge nat. A rule of its base chain jumps to the first,
// a rule there to the second, which compares the address. The names tell the
// container and the interface, but not the network.

var referenceTable = nftables.Table{Family: unix.NFPROTO_BRIDGE, Name: "nat"}

const (
	referenceBase    = "PREROUTING"
	referencePrefix  = "cni-br-iface-"
	referenceMAC     = "-mac" // ends the name of the second chain
	referenceComment = "macspoofchk-"
)

func referenceName(key plugin.Key) string { return key.ContainerID + "-" + key.IfName }

func hasReference(c *nftables.Conn, key plugin.Key) (bool, error) {
	return c.HasChain(referenceTable, referencePrefix+referenceName(key))
}

// removeReference removes the chains of an attachment.
func removeReference(ctx context.Context, c *nftables.Conn, key plugin.Key) error {
	there, err := hasReference(c, key)
	if err != nil || !there {
		return err
	}
	return removeNames(ctx, c, []string{referenceName(key)})
}

// collectReference removes the chains of containers that are neither valid nor
// in libcni's cache. Without a cache nobody knows which those are.
func collectReference(ctx context.Context, c *nftables.Conn, valid []plugin.Key) error {
	there, err := c.HasTable(referenceTable)
	if err != nil || !there {
		return err
	}
	entries, err := os.ReadDir(netfilter.ResultCache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	chains, err := c.Chains(referenceTable, referencePrefix)
	if err != nil {
		return err
	}
	var stale []string
	for _, chain := range chains {
		name := strings.TrimPrefix(chain, referencePrefix)
		if first := strings.TrimSuffix(name, referenceMAC); slices.Contains(chains, referencePrefix+first) {
			name = first
		}
		isValid := slices.ContainsFunc(valid, func(k plugin.Key) bool { return referenceName(k) == name })
		isCached := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return mayBeOf(e.Name(), name) })
		if !isValid && !isCached && !slices.Contains(stale, name) {
			stale = append(stale, name)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	return removeNames(ctx, c, stale)
}

// mayBeOf tells whether a file of libcni's cache may be about the container that
// is in CONTAINERID-IFNAME. Both may have a "-".
func mayBeOf(file, name string) bool {
	for i := range name {
		if i > 0 && name[i] == '-' && strings.Contains(file, "-"+name[:i]+"-") {
			return true
		}
	}
	return false
}

// removeNames removes the chains of some CONTAINERID-IFNAME, and the whole table
// if nothing is left in it but the empty base chain. Others have base chains of
// that name too (ebtables), with a policy maybe.
func removeNames(ctx context.Context, c *nftables.Conn, names []string) error {
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		generation, err := c.Generation()
		if err != nil {
			return err
		}
		tx, err := planRemoval(c, names)
		if err != nil {
			return err
		}
		last = c.CommitIf(tx, generation)
		if !errors.Is(last, unix.ERESTART) && !errors.Is(last, unix.ENOENT) {
			return last
		}
	}
	return &types.Error{
		Code:    types.ErrTryAgainLater,
		Msg:     "table " + referenceTable.String() + ": given up to remove what the reference bridge plugin made: " + last.Error(),
		Details: "other processes change nftables all the time; look who with `nft monitor`",
	}
}

func planRemoval(c *nftables.Conn, names []string) (*nftables.Transaction, error) {
	all, err := c.Chains(referenceTable, "")
	if err != nil {
		return nil, err
	}
	rules, err := c.Rules(referenceTable, "")
	if err != nil {
		return nil, err
	}
	var chains []string // those that are jumped from first
	isGone := func(chain string) bool { return slices.Contains(chains, chain) }
	comments := map[string]bool{}
	for _, name := range names {
		for _, chain := range []string{referencePrefix + name, referencePrefix + name + referenceMAC} {
			if slices.Contains(all, chain) && !isGone(chain) {
				chains = append(chains, chain)
			}
		}
		comments[referenceComment+name] = true
	}
	tx := &nftables.Transaction{}
	left := 0
	done := map[uint64]bool{} // a list may hold a rule twice
	for _, r := range rules {
		switch {
		case done[r.Handle] || isGone(r.Chain):
		case isGone(r.Jump) || r.Chain == referenceBase && comments[r.Comment]:
			tx.RemoveRule(0, referenceTable, r)
		default:
			left++
		}
		done[r.Handle] = true
	}
	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return isGone(name) || name == referenceBase })
	sets, err := c.Sets(referenceTable, "")
	if err != nil {
		return nil, err
	}
	drops, err := c.Drops(referenceTable, referenceBase)
	if err != nil {
		return nil, err
	}
	if left == 0 && len(others) == 0 && len(sets) == 0 && !drops {
		tx = &nftables.Transaction{}
		tx.RemoveTable(0, referenceTable)
		return tx, nil
	}
	for _, chain := range chains {
		tx.FlushChain(0, referenceTable, chain)
	}
	for _, chain := range chains {
		tx.RemoveChain(0, referenceTable, chain)
	}
	return tx, nil
}
