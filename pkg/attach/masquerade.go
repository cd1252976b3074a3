package attach

import (
	"context"
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
	c := MasqueradeConfig{By: netfilter.Wish{Key: "ipMasqBackend"}}
	o.Bool("ipMasq", &c.On)
	o.String(c.By.Key, &c.By.Value)
	return c
}

// Add masquerades the addresses of the result.
func (c MasqueradeConfig) Add(ctx context.Context, a *Attachment) error {
	if !c.On || len(a.IPs) == 0 {
		return nil
	}
	if err := a.Step(ctx, "masquerade"); err != nil {
		return err
	}
	a.Undo.Push("stop masquerading", func(ctx context.Context) error { return netfilter.Del(ctx, a.Request, nil, netfilter.Masquerade(nil)) })
	return netfilter.Masquerade(result.Prefixes(a.IPs)).Add(ctx, c.By, a.Request)
}

// Mend looks at what Add has made.
func (c MasqueradeConfig) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) {
	addrs := result.PrefixesOf(r.PrevResult, r.IfName)
	if !c.On || len(addrs) == 0 || m.IsOver() {
		return
	}
	masquerade := netfilter.Masquerade(addrs)
	m.Mend(masquerade.Check(ctx, c.By, r), "masquerade "+text(addrs), func() error { return masquerade.Repair(ctx, c.By, r) })
}

func text(addrs []netip.Prefix) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.Addr().String())
	}
	return strings.Join(texts, ", ")
}

// Available reports whether the host has what Add needs.
func (c MasqueradeConfig) Available() error {
	if !c.On {
		return nil
	}
	return netfilter.Masquerade(nil).Available(c.By)
}

// Explain says which backend Add would choose, and why.
func (c MasqueradeConfig) Explain(of *Config) []string {
	if !c.On || of.IPAM == "" {
		return nil
	}
	return []string{netfilter.Masquerade(nil).Explain(c.By)}
}
