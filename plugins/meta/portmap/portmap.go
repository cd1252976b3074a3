// Package portmap publishes ports of a container on the host.
package portmap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Plugin is the portmap plugin.
type Plugin struct{}

// Add publishes the ports that the runtime asks for. It is one transaction, so
// that there is nothing to undo.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	c, ports, err := wanted(r)
	if err != nil || len(ports.Maps) == 0 {
		return r.PrevResult, err
	}
	if err := r.Step(ctx, "publish ports"); err != nil {
		return nil, err
	}
	if err := netfilter.PortMaps(ports).Add(ctx, c.backend, r); err != nil {
		return nil, withRemedy(err)
	}
	return r.PrevResult, nil
}

// Del takes back the ports that the attachment has published. It needs its key
// alone.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	r.Announce("take back published ports")
	return netfilter.Del(ctx, r, result.PrefixesOf(r.PrevResult, r.IfName), netfilter.PortMaps(spec.PortNeeds{}))
}

// Mend looks at what is published.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, ports, err := wanted(r)
	if err != nil || len(ports.Maps) == 0 {
		return err
	}
	var texts []string
	for _, p := range ports.Maps {
		texts = append(texts, p.String())
	}
	published := netfilter.PortMaps(ports)
	m.Mend(published.Check(ctx, c.backend, r), "publish "+strings.Join(texts, ", "), func() error {
		return withRemedy(published.Repair(ctx, c.backend, r))
	})
	return nil
}

// Status reports whether the host has what publishing a port needs.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err != nil {
		return err
	}
	return netfilter.PortMaps(spec.PortNeeds{Conditions4: c.conditions4, Conditions6: c.conditions6}).Available(c.backend)
}

// Explain implements plugin.Explainer.
func (Plugin) Explain(o *conf.Object) []string {
	c, err := parse(o)
	if err != nil {
		return nil // which STATUS says
	}
	return []string{netfilter.PortMaps(spec.PortNeeds{}).Explain(c.backend)}
}

// Stores returns where ports are published.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return netfilter.Stores(r, netfilter.PortMaps(spec.PortNeeds{}))
}

// wanted returns the ports that the configuration asks to publish, none if
// there is nothing to do.
func wanted(r *plugin.Request) (c *config, ports spec.PortNeeds, err error) {
	c, err = parse(r.Config)
	if err != nil {
		return nil, ports, err
	}
	if len(c.mappings) == 0 {
		return c, ports, nil
	}
	ports = spec.PortNeeds{
		SNAT: c.snat, MasqAll: c.snat && c.masqAll,
		MarkBit: c.markBit, SetMarkChain: c.setMarkChain,
		Conditions4: c.conditions4, Conditions6: c.conditions6,
		Networks: result.PrefixesOf(r.PrevResult, r.IfName), Results: r.Results,
	}
	ports.Maps, err = c.portMaps(result.AddressesOf(r.PrevResult, r.IfName))
	if err != nil || len(ports.Maps) == 0 || !c.snat {
		return c, ports, err
	}
	inside, err := linkTowards(r.Links(), ports.Maps[0])
	if err != nil || inside == nil {
		return c, ports, err
	}
	ports.Inside, ports.InsideShared = inside.Attrs().Name, !isOwn(r, inside)
	return c, ports, nil
}

// isOwn reports whether a link of the host leads to the container alone: the other end is in its namespace. The host's own way out can be a veth,
// too, where the node is a container.
func isOwn(r *plugin.Request, l netlink.Link) bool {
	if l.Type() != "veth" {
		return false
	}
	id, err := r.NetnsID()
	return err == nil && link.LeadsInto(l, id)
}

// linkTowards finds the host's link towards the container of a port map by the
// route to it, nil if there is none.
func linkTowards(h *netlink.Handle, m spec.PortMap) (netlink.Link, error) {
	container := m.Container.Addr()
	routes, err := h.RouteGet(container.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return nil, nil
	}
	if err != nil || len(routes) == 0 {
		return nil, fmt.Errorf("find the link to %s: %w", container, err)
	}
	l, err := h.LinkByIndex(routes[0].LinkIndex)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the link to %s: %w", container, err)
	case l.Attrs().RawFlags&unix.IFF_LOOPBACK != 0:
		return nil, nil // an address of the host: a guard of 127.0.0.0/8 for lo would cut the host off from itself
	}
	return l, nil
}

// withRemedy adds what to do to the errors that the host causes.
func withRemedy(err error) error {
	var e *sysctl.Error
	if errors.As(err, &e) {
		return plugin.Errorf(fmt.Sprintf("%s; or set \"snat\" to false to do without", e.Remedy()), "let processes of the host reach published ports by 127.0.0.1: %v", e)
	}
	return err
}
