package backend

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// The names of the backends, which are values of configuration keys.
const (
	NFTables = "nftables"
	IPTables = "iptables"
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

// Explain says in a sentence what does a work and why: "masquerades with iptables: ipMasqBackend says so".
func (u Use) Explain(work string, w Wish) string {
	c, err := w.choose()
	if err != nil {
		return work + " with nothing: " + err.Error()
	}
	if c.Preferred {
		if err := onHost(func(conn *nft.Conn) error { return u.inNFT(conn).Available() }); errors.As(err, new(nft.Unavailable)) {
			c = without(err)
		}
	}
	return work + " with " + c.Backend + ": " + c.Reason
}

// with does something with the backend that is wished for, if there is a choice.
func (u Use) with(w Wish, inNFT func(*nft.Conn) error, inIPTables func(*iptables.Backend) error) error {
	if u.wants == nil {
		return onHost(inNFT)
	}
	c, err := w.choose()
	if err != nil {
		return err
	}
	return onHost(func(conn *nft.Conn) error {
		if c.Backend == NFTables {
			err := inNFT(conn)
			if !c.Preferred || !errors.As(err, new(nft.Unavailable)) {
				return c.explain(err)
			}
			c = without(err)
		}
		return c.explain(inIPTables(iptables.On(conn)))
	})
}

// without is the choice when the kernel has no nftables.
func without(err error) Choice {
	return Choice{Backend: IPTables, Reason: fmt.Sprintf("the kernel has no usable nftables (%v)", err)}
}

// explain says in an error which backend failed and why it was that one. With nftables for no special reason there is nothing to say.
func (c Choice) explain(err error) error {
	if err == nil || c.Preferred {
		return err
	}
	return fmt.Errorf("backend %s (%s): %w", c.Backend, c.Reason, err)
}
