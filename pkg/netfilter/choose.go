package netfilter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cnibox/cnibox/pkg/kernel"
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
	if err == nil || c.Preferred {
		return err
	}
	return fmt.Errorf("backend %s (%s): %w", c.Backend, c.Reason, err)
}

// giveWay chooses iptables if the kernel lacks what nftables failed for, and nothing speaks against it.
func (c *Choice) giveWay(err error) bool {
	if !c.Preferred || !kernel.IsMissing(err) {
		return false
	}
	*c = Choice{Backend: IPTables, Reason: fmt.Sprintf("the kernel has no usable nftables (%v)", err)}
	return true
}

// filtered is what both nftables and iptables can do.
type filtered interface {
	purpose() nft.Purpose
	addElements(ctx context.Context, c *nft.Conn, key plugin.Key) error
	repairElements(ctx context.Context, c *nft.Conn, key plugin.Key) error
	checkElements(ctx context.Context, c *nft.Conn, key plugin.Key) error
	rules(key plugin.Key) iptables.Rules
}

// open chooses a backend, and opens the connection that both need.
func (w Wish) open(ctx context.Context) (c Choice, conn *nft.Conn, err error) {
	if c, err = w.choose(); err != nil {
		return c, nil, err
	}
	if conn, err = nft.Open(); err == nil {
		conn.Join(ctx)
	}
	return c, conn, err
}

func add(ctx context.Context, w Wish, key plugin.Key, f filtered) error {
	c, conn, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Backend == NFTables {
		if err := f.addElements(ctx, conn, key); !c.giveWay(err) {
			return c.withReason(err)
		}
	}
	return c.withReason(iptables.On(conn).Add(ctx, f.rules(key)))
}

// repair puts back what is missing. What has been in iptables stays there if nothing is said about the backend: two would publish a port
// twice.
func repair(ctx context.Context, w Wish, key plugin.Key, f filtered) error {
	c, conn, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Preferred {
		has, err := iptables.On(conn).Has(ctx, f.rules(key))
		if err != nil {
			return err
		}
		if has {
			c = Choice{Backend: IPTables, Reason: "it was there before"}
		}
	}
	if c.Backend == NFTables {
		if err := f.repairElements(ctx, conn, key); !c.giveWay(err) {
			return c.withReason(err)
		}
	}
	return c.withReason(iptables.On(conn).Repair(ctx, f.rules(key)))
}

// check tries iptables too if nftables fails and nothing is said about it. The error is nftables', unless iptables has some of it: what is
// missing is missing there.
func check(ctx context.Context, w Wish, key plugin.Key, f filtered) error {
	c, conn, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Backend == NFTables {
		err := f.checkElements(ctx, conn, key)
		if err != nil && c.Preferred {
			rules := iptables.On(conn)
			errThere := rules.Check(ctx, f.rules(key))
			if errThere == nil {
				return nil
			}
			if has, errHas := rules.Has(ctx, f.rules(key)); has && errHas == nil {
				return errThere
			}
		}
		if !c.giveWay(err) {
			return c.withReason(err)
		}
	}
	return c.withReason(iptables.On(conn).Check(ctx, f.rules(key)))
}

func available(w Wish, f filtered) error {
	if err := netns.CheckAdmin(); err != nil {
		return err
	}
	c, conn, err := w.open(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Backend == NFTables {
		if err := conn.Available(f.purpose()); !c.giveWay(err) {
			return c.withReason(err)
		}
	}
	return c.withReason(iptables.On(conn).Available())
}

// explain says in a sentence what does a work and why: "masquerades with iptables: ipMasqBackend says so".
func explain(work string, w Wish, f filtered) string {
	c, conn, err := w.open(context.Background())
	if err != nil {
		return work + " with nothing: " + err.Error()
	}
	defer conn.Close()
	if c.Preferred {
		c.giveWay(conn.Try(f.purpose()))
	}
	return work + " with " + c.Backend + ": " + c.Reason
}
