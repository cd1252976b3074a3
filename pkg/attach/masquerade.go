package attach

import (
	"context"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Masquerade is what a configuration says about what the container sends out of its network.
type Masquerade struct {
	On bool
	By backend.Wish
}

// ReadMasquerade reads the keys "ipMasq" and "ipMasqBackend".
func ReadMasquerade(o *conf.Object) Masquerade {
	m := Masquerade{By: backend.Wish{Key: "ipMasqBackend"}}
	o.Bool("ipMasq", &m.On)
	o.String(m.By.Key, &m.By.Value)
	return m
}

// Add masquerades the addresses of the result.
func (m Masquerade) Add(ctx context.Context, a *Attachment) error {
	if !m.On || len(a.Result.IPs) == 0 {
		return nil
	}
	if err := a.Step(ctx, "masquerade"); err != nil {
		return err
	}
	a.Undo.Push("stop masquerading", func(ctx context.Context) error { return backend.DelMasquerade(ctx, a.Key, nil) })
	return backend.AddMasquerade(ctx, m.By, a.Key, plugin.Prefixes(a.Result.IPs))
}

// Check compares what is there with what Add has made.
func (m Masquerade) Check(ctx context.Context, r *plugin.Request) error {
	ips := plugin.AddressesOf(r.PrevResult, r.IfName)
	if !m.On || len(ips) == 0 {
		return nil
	}
	return backend.CheckMasquerade(ctx, m.By, r.Key, plugin.Prefixes(ips))
}

// Available reports whether the host has what Add needs.
func (m Masquerade) Available() error {
	if !m.On {
		return nil
	}
	return backend.Available(m.By)
}

// Explain says which backend Add would choose, and why.
func (m Masquerade) Explain(c *Config) []string {
	if !m.On || c.IPAM == "" {
		return nil
	}
	return []string{backend.Explain("masquerades", m.By)}
}
