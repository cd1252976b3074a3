package backend

import (
	"errors"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// Available reports whether the backend that is wished for, or the one that would
// stand in for it, can be used.
func Available(w Wish) error {
	return w.one((*nft.Conn).Available, (*iptables.Backend).Available)
}

// one does something with the backend that is wished for.
func (w Wish) one(withNFT func(*nft.Conn) error, withIPTables func(*iptables.Backend) error) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	c, err := h.choose(w)
	if err != nil {
		return err
	}
	return h.with(c, withNFT, withIPTables)
}

// either is one, and tries the other backend if it fails and nothing is said.
// The error is the first one's.
func (w Wish) either(withNFT func(*nft.Conn) error, withIPTables func(*iptables.Backend) error) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	c, err := h.choose(w)
	if err != nil {
		return err
	}
	err = h.with(c, withNFT, withIPTables)
	if err != nil && c.Preferred && withIPTables(iptables.On(h.conn)) == nil {
		return nil
	}
	return err
}

// with does something with the backend that was chosen, or stands in for it.
func (h *host) with(c Choice, withNFT func(*nft.Conn) error, withIPTables func(*iptables.Backend) error) error {
	if c.Backend == NFTables {
		err := h.withNFT(withNFT)
		if !c.Preferred || !errors.Is(err, netfilter.ErrUnavailable) {
			return c.explain(err)
		}
		c = c.without(err)
	}
	return c.explain(withIPTables(iptables.On(h.conn)))
}

func ignoreUnavailable(err error) error {
	if errors.Is(err, netfilter.ErrUnavailable) {
		return nil
	}
	return err
}
