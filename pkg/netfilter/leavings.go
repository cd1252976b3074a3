package netfilter

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Leaving is something of the packet filter that all attachments have in common, ours and the reference plugins', and that is still there
// when they are gone.
type Leaving interface {
	fmt.Stringer
	Remove(ctx context.Context) error
}

// Leavings finds what is there, and the administrator's chains, which stay.
func Leavings(ctx context.Context) (list []Leaving, staying []string, err error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	spoof := reference.SpoofChains{}.Tables()[0]
	tables := slices.DeleteFunc(append(OwnTables(), ReferenceTables()...), func(t nftables.Table) bool { return t == spoof })
	there, err := conn.HasTables(tables...)
	if err != nil {
		return nil, nil, err
	}
	for i, t := range tables {
		if there[i] {
			list = append(list, tableLeft(t))
		}
	}
	chains, err := reference.SpoofChains{}.Held(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	names, empty, err := conn.IsEmpty(spoof)
	if err != nil {
		return nil, nil, err
	}
	if len(chains) > 0 {
		list = append(list, chainsLeft(chains))
	} else if empty && slices.Equal(names, []string{"PREROUTING"}) { // as the reference plugin makes it; ebtables has more chains
		list = append(list, chainsLeft(nil))
	}
	others, err := iptables.FindLeavings(ctx)
	for _, l := range others {
		if !l.IsEmpty() {
			list = append(list, l)
		}
		for _, chain := range l.Kept {
			staying = append(staying, fmt.Sprintf("chain %s of %s", chain, l.Table()))
		}
	}
	return list, staying, err
}

// tableLeft is a table of nf_tables that is ours as a whole, or the reference plugins'.
type tableLeft nftables.Table

// String returns the table as nft's commands take it.
func (t tableLeft) String() string { return "nftables table " + NameOf(nftables.Table(t)) }

// Remove removes the table.
func (t tableLeft) Remove(ctx context.Context) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return nft.Change(ctx, "remove "+t.String(), func() error {
		there, err := conn.HasTables(nftables.Table(t))
		if err != nil || !there[0] {
			return err
		}
		conn.DelTable((*nftables.Table)(&t))
		return conn.Commit("remove " + t.String())
	})
}

// chainsLeft is the chains of the reference plugin's spoof check, in a table that others may use, too.
type chainsLeft []plugin.Held

// String says how many they are.
func (c chainsLeft) String() string {
	if len(c) == 0 {
		return "nftables table bridge nat, which is empty"
	}
	return fmt.Sprintf("%d chains of spoof checks in nftables table bridge nat", len(c))
}

// Remove removes the chains, and their table if nothing is in it then.
func (c chainsLeft) Remove(ctx context.Context) error {
	spoof := reference.SpoofChains{Request: &plugin.Request{}}
	if err := spoof.Release(ctx, c); err != nil {
		return err
	}
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.RemoveIfEmpty(spoof.Tables()[0])
}
