package attach

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// MasqueradeConfig is what a configuration says about what the container sends out of its network.
type MasqueradeConfig struct {
	On bool
	By netfilter.Wish
}

// ReadMasquerade reads the keys "ipMasq" and "ipMasqBackend".
func ReadMasquerade(o *conf.Object) MasqueradeConfig {
	m := MasqueradeConfig{By: netfilter.Wish{Key: "ipMasqBackend"}}
	o.Bool("ipMasq", &m.On)
	o.String(m.By.Key, &m.By.Value)
	return m
}

// Add masquerades the addresses of the result.
func (m MasqueradeConfig) Add(ctx context.Context, a *Attachment) error {
	if !m.On || len(a.IPs) == 0 {
		return nil
	}
	if err := a.Step(ctx, "masquerade"); err != nil {
		return err
	}
	a.Undo.Push("stop masquerading", func(ctx context.Context) error { return netfilter.Del(ctx, a.Request, nil, netfilter.Masquerade{}) })
	return netfilter.Masquerade{Addrs: result.Prefixes(a.IPs)}.Add(ctx, m.By, a.Key)
}

// Check compares what is there with what Add has made.
func (m MasqueradeConfig) Check(ctx context.Context, r *plugin.Request) error {
	ips := result.AddressesOf(r.PrevResult, r.IfName)
	if !m.On || len(ips) == 0 {
		return nil
	}
	if err := (netfilter.Masquerade{Addrs: result.Prefixes(ips)}).Check(ctx, m.By, r.Key); err != nil {
		return unmasqueraded{err}
	}
	return nil
}

// unmasqueraded is an error of Check.
type unmasqueraded struct{ error }

func (e unmasqueraded) Unwrap() error { return e.error }

// IsLost reports whether it is what CHECK has found to be missing.
func (MasqueradeConfig) IsLost(r *plugin.Request) bool { return errors.As(r.Found, new(unmasqueraded)) }

// Repair puts back what is missing of it.
func (m MasqueradeConfig) Repair(ctx context.Context, r *plugin.Request) error {
	if !m.IsLost(r) && m.Check(ctx, r) == nil {
		return nil
	}
	addrs := result.PrefixesOf(r.PrevResult, r.IfName)
	r.Announce("masquerade " + text(addrs))
	return netfilter.Masquerade{Addrs: addrs}.Repair(ctx, m.By, r.Key)
}

func text(addrs []netip.Prefix) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.Addr().String())
	}
	return strings.Join(texts, ", ")
}

// Available reports whether the host has what Add needs.
func (m MasqueradeConfig) Available() error {
	if !m.On {
		return nil
	}
	return netfilter.Masquerade{}.Available(m.By)
}

// Explain says which backend Add would choose, and why.
func (m MasqueradeConfig) Explain(c *Config) []string {
	if !m.On || c.IPAM == "" {
		return nil
	}
	return []string{netfilter.Masquerade{}.Explain(m.By)}
}
