package netfilter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cnibox/cnibox/pkg/netfilter/conntrack"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// The names of the backends, which are values of configuration keys.
const (
	NFTables  = "nftables"
	IPTables  = "iptables"
	Firewalld = "firewalld" // of Forward only
)

// Wish is what a configuration says about the backend.
type Wish struct {
	Key   string // the configuration's key, such as "ipMasqBackend"
	Value string // of that key; "" if it is not there

	// IPTables and NFTables are what of the configuration only that backend can do, such as "externalSetMarkChain"; "" if there is nothing.
	IPTables, NFTables string
}

// Choice is a backend, and why it is that one.
type Choice struct {
	Backend, Reason string
	Preferred       bool // the other one will do if the kernel lacks this one
}

// Validate refuses a wish that no backend can fulfil. It looks at the configuration alone.
func (w Wish) Validate() error {
	const remedy = "leave out one of the two"
	switch {
	case w.Value != "" && w.Value != NFTables && w.Value != IPTables:
		return plugin.ConfigError(`use "nftables" or "iptables", or leave it out`, "%s: unknown backend %q", w.Key, w.Value)
	case w.IPTables != "" && w.NFTables != "":
		return plugin.ConfigError(remedy, "%s needs iptables, but %s needs nftables", w.IPTables, w.NFTables)
	case w.Value == NFTables && w.IPTables != "":
		return plugin.ConfigError(remedy, "%s is %q, but %s needs iptables", w.Key, w.Value, w.IPTables)
	case w.Value == IPTables && w.NFTables != "":
		return plugin.ConfigError(remedy, "%s is %q, but %s needs nftables", w.Key, w.Value, w.NFTables)
	}
	return nil
}

// choose chooses a backend. It looks at the host, and asks the kernel for nothing that it would have to load.
func (w Wish) choose() (Choice, error) {
	if err := w.Validate(); err != nil {
		return Choice{}, err
	}
	switch {
	case w.Value != "":
		return Choice{Backend: w.Value, Reason: w.Key + " says so"}, nil
	case w.IPTables != "":
		return Choice{Backend: IPTables, Reason: w.IPTables + " needs it"}, nil
	case w.NFTables != "":
		return Choice{Backend: NFTables, Reason: w.NFTables + " needs it"}, nil
	}
	const ipvsLink = "kube-ipvs0" // on which kube-proxy has the addresses of Services in IPVS mode
	_, err := sysctl.Get("net/ipv4/conf/" + ipvsLink + "/forwarding")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Choice{Backend: NFTables, Reason: w.Key + " is left out, and nftables is preferred", Preferred: true}, nil
	case err != nil:
		return Choice{}, fmt.Errorf("look for link %s: %w", ipvsLink, err)
	}
	return Choice{Backend: IPTables, Reason: "kube-proxy is in IPVS mode (" + ipvsLink + " is there), which needs its own rules to come first"}, nil
}

// withReason says in an error which backend failed and why it was that one. With nftables for no special reason there is nothing to say.
func (c Choice) withReason(err error) error {
	if err == nil || c.Preferred || c.Reason == "" {
		return err
	}
	return fmt.Errorf("backend %s (%s): %w", c.Backend, c.Reason, err)
}

// giveWay chooses iptables if the kernel lacks what nftables failed for, and nothing speaks against it.
func (c *Choice) giveWay(err error) bool {
	if !c.Preferred || !plugin.IsMissingFeature(err) {
		return false
	}
	*c = Choice{Backend: IPTables, Reason: fmt.Sprintf("the kernel has no usable nftables (%v)", err)}
	return true
}

// open chooses a backend, and opens the connection that all need.
func (t Feature) open(w Wish, s Session) (c Choice, conn *nft.Conn, b *iptables.Backend, err error) {
	c = Choice{Backend: NFTables}
	if t.kind != "" {
		if c, err = w.choose(); err != nil {
			return c, nil, nil, err
		}
	}
	if conn, err = nft.Open(); err != nil {
		return c, nil, nil, err
	}
	conn.Join(s.Batch)
	return c, conn, iptables.On(conn, s.Listings), nil
}

// Add gives it to the request's attachment, in place of what that has.
func (t Feature) Add(ctx context.Context, w Wish, r *plugin.Request) error {
	c, conn, b, err := t.open(w, sessionOf(r))
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Backend == NFTables {
		if err = conn.Add(ctx, r.Key, t.elements); err == nil && t.marked != nil {
			err = b.Accept(ctx, *t.marked)
		}
	}
	if c.Backend == IPTables || c.giveWay(err) {
		err = b.Add(ctx, t.rules(r.Key))
	}
	if err != nil {
		return c.withReason(err)
	}
	if err := conntrack.FlushPublished(ctx, t.ports.Maps); err != nil {
		return errors.Join(err, Del(context.WithoutCancel(ctx), r, nil, t))
	}
	return nil
}

// Repair gives the attachment what is missing of it. A thing that was in iptables stays there if nothing is said about the backend: two would
// publish a port twice.
func (t Feature) Repair(ctx context.Context, w Wish, r *plugin.Request) error {
	c, conn, b, err := t.open(w, sessionOf(r))
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Preferred {
		has, err := b.Has(ctx, t.rules(r.Key))
		if err != nil {
			return err
		}
		if has {
			c = Choice{Backend: IPTables, Reason: "it was there before"}
		}
	}
	if c.Backend == NFTables {
		if err = conn.Repair(ctx, r.Key, t.elements); t.marked != nil {
			err = errors.Join(err, b.Accept(ctx, *t.marked))
		}
	}
	if c.Backend == IPTables || c.giveWay(err) {
		err = b.Repair(ctx, t.rules(r.Key))
	}
	if err != nil {
		return c.withReason(err)
	}
	return conntrack.FlushPublished(ctx, t.ports.Maps)
}

// Check compares what is there with what Add makes. The reference plugins' rules in nftables will do, unless the configuration says iptables.
func (t Feature) Check(ctx context.Context, w Wish, r *plugin.Request) error {
	c, conn, b, err := t.open(w, sessionOf(r))
	if err != nil {
		return err
	}
	defer conn.Close()
	err = t.check(ctx, c, conn, b, r.Key)
	if err != nil && t.leftovers != nil && w.Value != IPTables && isLeftover(ctx, conn, t.leftovers(r), t.addrs) {
		return nil
	}
	return err
}

// check tries iptables too if nftables fails and nothing is said about it. The error is nftables', unless iptables has some of it: what is
// missing is missing there.
func (t Feature) check(ctx context.Context, c Choice, conn *nft.Conn, b *iptables.Backend, key plugin.Key) error {
	if c.Backend == NFTables {
		err := conn.Check(key, t.elements)
		if err == nil && t.marked != nil {
			err = b.CheckAccepts(ctx, *t.marked)
		}
		if err != nil && c.Preferred {
			errThere := b.Check(ctx, t.rules(key))
			if errThere == nil {
				return nil
			}
			if has, errHas := b.Has(ctx, t.rules(key)); has && errHas == nil {
				return errThere
			}
		}
		if !c.giveWay(err) {
			return c.withReason(err)
		}
	}
	return c.withReason(b.Check(ctx, t.rules(key)))
}

// Available reports whether the host has what Add needs, as far as that can be told before there is anything to add.
func (t Feature) Available(w Wish) error {
	if t.kind != "" {
		if err := netns.CheckAdmin(); err != nil {
			return err
		}
	}
	c, conn, b, err := t.open(w, Session{})
	if err != nil {
		return err
	}
	defer conn.Close()
	lacks := conn.Available(t.elements.Purpose)
	if c.Backend == NFTables {
		err = lacks
	}
	if c.Backend == IPTables || c.giveWay(err) {
		err = b.Available(plugin.IsMissingFeature(lacks))
	}
	err = c.withReason(err)
	if w.NFTables != "" {
		err = errors.Join(err, nft.CheckConditions(t.ports))
	}
	return err
}

// Explain says in a sentence what does a work and why: "masquerades with iptables: ipMasqBackend says so".
func (t Feature) Explain(w Wish) string {
	c, conn, _, err := t.open(w, Session{})
	if err != nil {
		return t.does + " with nothing: " + err.Error()
	}
	defer conn.Close()
	if c.Preferred {
		c.giveWay(conn.Try(t.elements.Purpose))
	}
	return t.does + " with " + c.Backend + ": " + c.Reason
}
