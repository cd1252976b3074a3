package backend

import (
	"errors"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// Available tells whether the backend that is wished for, or the one that would
// stand in for it, can be used.
func Available(w Wish) error {
	return w.one((*nft.Table).Available, (*iptables.Backend).Available)
}

// one does something with the backend that is wished for.
func (w Wish) one(withNFT func(*nft.Table) error, withIPTables func(*iptables.Backend) error) error {
	c, err := Choose(w)
	if err != nil {
		return err
	}
	if c.Backend == NFTables {
		err := withTable(withNFT)
		if !c.Preferred || !errors.Is(err, netfilter.ErrUnavailable) {
			return c.explain(err)
		}
		c = c.without(err)
	}
	return c.explain(withIPTables(iptables.New()))
}

// either is one, and tries the other backend if it fails and nothing is said.
// The error is the first one's.
func (w Wish) either(withNFT func(*nft.Table) error, withIPTables func(*iptables.Backend) error) error {
	err := w.one(withNFT, withIPTables)
	if c, chosen := Choose(w); err == nil || chosen != nil || !c.Preferred {
		return err
	}
	if withIPTables(iptables.New()) == nil {
		return nil
	}
	return err
}

func withTable(do func(*nft.Table) error) error {
	table, err := nft.Open()
	if err != nil {
		return err
	}
	defer table.Close()
	return do(table)
}

// inNFTables is withTable for what removes things: nothing is in the kernel that
// it can't have.
func inNFTables(do func(*nft.Table) error) error { return ignoreUnavailable(withTable(do)) }

func ignoreUnavailable(err error) error {
	if errors.Is(err, netfilter.ErrUnavailable) {
		return nil
	}
	return err
}
