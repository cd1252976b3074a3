package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Del removes the masquerading, then the veth pair, and gives back the address
// last, when nothing points at it any more.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	c := locate(r)
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	ends, err := hostEnds(host, r.Key)
	var errs []error
	if len(ends) == 0 || slices.ContainsFunc(ends, isFiltered) {
		r.Announce("masquerade")
		errs = append(errs, backend.DelBridge(ctx, r.Key, r.PrevResult.Prefixes(r.IfName)))
	}
	var ipam *delegate.Delegate
	if c.ipam != "" {
		var err error
		ipam, err = delegate.Find(r, c.ipam)
		errs = append(errs, err)
	}
	early := ipam != nil && ipam.ReleasesThroughLink()
	if early {
		r.Announce("ipam")
		errs = append(errs, ipam.Del(ctx, r))
	}
	r.Announce("veth")
	if err == nil {
		err = disconnect(r, c, host, ends)
	}
	errs = append(errs, err)
	if ipam != nil && !early && err == nil {
		r.Announce("ipam")
		errs = append(errs, ipam.Del(ctx, r))
	}
	return errors.Join(errs...)
}

// disconnect deletes the attachment's veth pair, of which the host ends were
// found by the key. If there is none the container may still have an interface
// that the reference plugin made.
func disconnect(r *plugin.Request, c *config, host *link.Conn, ends []*link.Link) error {
	for _, l := range ends {
		if err := gone(remove(host, r, l.Index)); err != nil {
			return err
		}
	}
	if len(ends) > 0 || r.NS() == nil {
		return nil
	}
	return disconnectForeign(host, r, c)
}

// disconnectForeign deletes a veth pair of the reference plugin, whose host end
// has a random name: it is found from the container's side. The namespace's
// path may be another container's by now, so the pair must not be one of ours
// and must look like what ADD reported, or else be on the network's bridge.
func disconnectForeign(host *link.Conn, r *plugin.Request, c *config) error {
	pod, err := link.OpenIn(r.NS())
	if err != nil {
		return err
	}
	defer pod.Close()
	inside, err := pod.ByName(r.IfName)
	if err != nil {
		return gone(err)
	}
	outside, err := host.ByIndex(inside.Peer)
	if err != nil {
		return gone(err)
	}
	if inside.Kind != "veth" || outside.Kind != "veth" || strings.HasPrefix(outside.Alias, aliasPrefix) {
		return nil
	}
	if !reported(r, inside) && !onBridge(host, outside, c.bridge) {
		return nil
	}
	return gone(remove(host, r, outside.Index))
}

// remove deletes a link, and does not wait for the kernel to free its memory if
// it need not.
func remove(host *link.Conn, r *plugin.Request, index int) error {
	if r.MayDetach() {
		return host.DeleteDetached(index)
	}
	return host.Delete(index)
}

// reported tells whether the previous result names the link as the container's.
func reported(r *plugin.Request, l *link.Link) bool {
	if r.PrevResult == nil {
		return false
	}
	return slices.ContainsFunc(r.PrevResult.Interfaces, func(f plugin.Interface) bool {
		return f.Name == l.Name && f.Sandbox != "" && strings.EqualFold(f.MAC, link.MACText(l.MAC))
	})
}

func onBridge(c *link.Conn, l *link.Link, bridge string) bool {
	b, err := c.ByName(bridge)
	return err == nil && l.Master == b.Index
}

// GC removes the veth pairs and masquerading of the network's attachments that
// are not valid, and has the IPAM plugin do the same with their addresses.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	errs := []error{backend.GCMasquerade(ctx, r.Network, r.ValidKeys()), backend.GCSpoofCheck(ctx, r.Network, r.ValidKeys()), collectLinks(r)}
	if c := locate(r); c.ipam != "" {
		ipam, err := delegate.Find(r, c.ipam)
		if err == nil {
			err = ipam.GC(ctx, r)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func collectLinks(r *plugin.Request) error {
	valid := map[string]bool{}
	for _, k := range r.ValidKeys() {
		valid[alias(k)] = true
	}
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	links, err := host.List()
	if err != nil {
		return err
	}
	var stale []int
	for _, l := range links {
		if l.Kind == "veth" && strings.HasPrefix(l.Alias, aliasPrefix+r.Network+"/") && !valid[owner(l)] {
			stale = append(stale, l.Index)
		}
	}
	return host.DeleteAll(stale)
}
