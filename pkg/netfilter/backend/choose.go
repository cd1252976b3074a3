// Package backend chooses between pkg/netfilter's backends, and cleans up in
// all of them.
//
// What an ADD makes is made by one: the one that is configured, else iptables if
// something on the host or in the configuration can't do without it, else
// nftables, else iptables. What a DEL or GC removes may have been made with
// another configuration, by an earlier version, or by the reference plugins; so
// it looks in all of them. Where nothing is, that is one message of nf_tables, a
// look for the directory of records, and one for tables of iptables-legacy.
package backend

import (
	"errors"
	"fmt"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
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

	// IPTables and NFTables are what of the configuration only that backend
	// can do, such as "externalSetMarkChain"; "" if there is nothing.
	IPTables, NFTables string
}

// Choice is a backend, and why it is that one.
type Choice struct {
	Backend string
	Reason  string

	// Preferred says that the other one will do if the kernel lacks this one.
	Preferred bool
}

// ipvsLink is the link on which kube-proxy has the addresses of Services when it
// is in IPVS mode.
const ipvsLink = "kube-ipvs0"

// Validate refuses a wish that no backend can fulfil. It looks at the
// configuration alone.
func (w Wish) Validate() error {
	_, err := w.configured()
	return err
}

// configured is what the configuration chooses. It is Preferred if the host may
// choose otherwise.
func (w Wish) configured() (Choice, error) {
	c := Choice{Backend: w.Value, Reason: w.Key + " says so"}
	switch {
	case w.Value != "" && w.Value != NFTables && w.Value != IPTables:
		return c, plugin.ConfigError(`use "nftables" or "iptables", or leave it out`, "%s: unknown backend %q", w.Key, w.Value)
	case w.IPTables != "" && w.NFTables != "":
		return c, plugin.ConfigError("leave out one of the two", "%s needs iptables, but %s needs nftables", w.IPTables, w.NFTables)
	case w.Value == NFTables && w.IPTables != "":
		return c, plugin.ConfigError("leave out one of the two", "%s is %q, but %s needs iptables", w.Key, w.Value, w.IPTables)
	case w.Value == IPTables && w.NFTables != "":
		return c, plugin.ConfigError("leave out one of the two", "%s is %q, but %s needs nftables", w.Key, w.Value, w.NFTables)
	case w.Value != "":
		return c, nil
	case w.IPTables != "":
		return Choice{Backend: IPTables, Reason: w.IPTables + " needs it"}, nil
	case w.NFTables != "":
		return Choice{Backend: NFTables, Reason: w.NFTables + " needs it"}, nil
	}
	return Choice{Backend: NFTables, Reason: w.Key + " is left out, and nftables is preferred", Preferred: true}, nil
}

// choose chooses a backend. It looks at the host, and asks the kernel for nothing
// that it would have to load.
func (h *host) choose(w Wish) (Choice, error) {
	c, err := w.configured()
	if err != nil || !c.Preferred {
		return c, err
	}
	isIPVS, err := hasLink(ipvsLink)
	if isIPVS {
		return Choice{Backend: IPTables, Reason: "kube-proxy is in IPVS mode (" + ipvsLink + " is there), which needs its own rules to come first"}, nil
	}
	return c, err
}

// Explain says in a sentence what does a work and why: "masquerades with
// iptables: ipMasqBackend says so".
func Explain(work string, w Wish) string {
	c, err := effective(w)
	if err != nil {
		return work + " with nothing: " + err.Error()
	}
	return work + " with " + c.Backend + ": " + c.Reason
}

// effective is the choice, or what stands in for it.
func effective(w Wish) (Choice, error) {
	h, err := openHost()
	if err != nil {
		return Choice{}, err
	}
	defer h.close()
	c, err := h.choose(w)
	if err != nil || !c.Preferred {
		return c, err
	}
	if err := h.withNFT((*nft.Conn).Available); errors.Is(err, netfilter.ErrUnavailable) {
		return c.without(err), nil
	}
	return c, nil
}

// without is the choice when the kernel has no nftables.
func (c Choice) without(err error) Choice {
	return Choice{Backend: IPTables, Reason: fmt.Sprintf("the kernel has no usable nftables (%v)", err)}
}

// explain says in an error which backend failed and why it was that one. With
// nftables for no special reason there is nothing to say.
func (c Choice) explain(err error) error {
	if err == nil || c.Preferred {
		return err
	}
	return fmt.Errorf("backend %s (%s): %w", c.Backend, c.Reason, err)
}
