package calllog

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Holder is an attachment that had an address.
type Holder struct {
	plugin.Key
	Pod  string
	From time.Time // its ADD began
	To   time.Time // its DEL was done; zero if it still has it, as far as the log knows

	// Replaced is set if the log has no DEL, but at To another attachment of the network got the address, or this one another address.
	Replaced bool

	plugin string // which made it
}

// Holders returns which attachments had an address, by calls in their order, the earliest first.
func Holders(calls []Call, address netip.Addr) (all []*Holder) {
	for _, c := range calls {
		if c.Error != nil {
			continue
		}
		own := last(all, func(h *Holder) bool { return h.Key == c.Key && h.plugin == c.Plugin })
		switch {
		case c.Verb == string(plugin.Add) && c.Got(address):
			if last(all, func(h *Holder) bool { return h.Key == c.Key }) != nil {
				continue // by the plugins after it in the list
			}
			if before := last(all, func(h *Holder) bool { return h.Network == c.Network }); before != nil {
				before.To, before.Replaced = c.Time, true
			}
			all = append(all, &Holder{Key: c.Key, Pod: c.Pod, From: c.Time, plugin: c.Plugin})
		case c.Verb == string(plugin.Add) && own != nil: // it was attached again, and got another one
			own.To, own.Replaced = c.Time, true
		case c.Verb == string(plugin.Del) && own != nil:
			own.To = c.Time.Add(c.Took)
		}
	}
	return all
}

// last returns the latest holder for which something is so and that still has the address; nil if there is none.
func last(all []*Holder, is func(*Holder) bool) *Holder {
	for _, h := range slices.Backward(all) {
		if h.To.IsZero() && is(h) {
			return h
		}
	}
	return nil
}

// Got reports whether an address is in the result of the call.
func (c *Call) Got(address netip.Addr) bool {
	return slices.ContainsFunc(c.Addresses, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Addr().Unmap() == address.Unmap()
	})
}
