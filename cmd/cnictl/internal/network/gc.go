package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Collection is what a GC did.
type Collection struct {
	Network string               `json:"network"`
	Kept    []Kept               `json:"kept"`
	Removed []types.GCAttachment `json:"removed"`
	Unread  []string             `json:"unread,omitempty"` // why files of the cache can't be read that may be about attachments of the network
}

// Kept is an attachment that stays.
type Kept struct {
	types.GCAttachment
	Why string `json:"why"`
}

// settled is how old what libcni has no result of must be, so that it is not that of an ADD under way.
const settled = time.Minute

// GC removes the attachments of the network that libcni's cache has and whose namespace is gone, but for those that are named: by DEL,
// which leaves all others alone. It removes nothing if something is held that the cache knows nothing of.
func (n Node) GC(ctx context.Context, list *libcni.NetworkConfigList, named []types.GCAttachment) (*Collection, error) {
	// What is held is looked at before and after the results: an ADD that ends meanwhile has a result then, and a DEL holds nothing more.
	before, err := n.findHoldings(ctx, list)
	if err != nil {
		return nil, err
	}
	known, unread, err := n.attachments(list.Name)
	if err != nil {
		return nil, err
	}
	holdings, err := n.findHoldings(ctx, list)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(before, func(key string, _ *holding) bool { return holdings[key] == nil })
	c := NewCollection(list.Name, unread)
	if err := n.keepUnknown(c, slices.Sorted(maps.Keys(before)), holdings, known, unread, named); err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range known {
		why := reasonToKeep(a, holdings[keyOf(list.Name, a.name()).String()], named)
		if why == "" {
			if err := n.del(ctx, list, a); err != nil {
				why, errs = "its DEL failed", append(errs, err)
			}
		}
		c.add(a.name(), why)
	}
	return c, errors.Join(errs...)
}

// GCAll removes all that the network has.
func (n Node) GCAll(ctx context.Context, list *libcni.NetworkConfigList) (*Collection, error) {
	known, unread, err := n.attachments(list.Name)
	if err != nil {
		return nil, err
	}
	before, err := n.findHoldings(ctx, list)
	if err != nil {
		return nil, err
	}
	c := NewCollection(list.Name, unread)
	var errs []error
	for _, a := range known {
		errs = append(errs, n.del(ctx, list, a))
		before.of(keyOf(list.Name, a.name()).String(), a.name())
	}
	// The list is empty and not nil, which libcni leaves out: plugins would then keep everything. libcni is not to look into the cache.
	nowhere := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(n.BinDirs), filepath.Join(n.CacheDir, "none"), &pluginExec{cacheDir: n.CacheDir})
	errs = append(errs, nowhere.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}))

	left, err := n.findHoldings(ctx, list)
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	known, _, err = n.attachments(list.Name)
	for _, a := range known {
		left.of(keyOf(list.Name, a.name()).String(), a.name())
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		why := ""
		if left[key] != nil {
			why = "it could not be removed"
		}
		c.add(before[key].GCAttachment, why)
	}
	return c, errors.Join(append(errs, err)...)
}

// NewCollection returns one in which nothing is done.
func NewCollection(network string, unread map[string]error) *Collection {
	c := &Collection{Network: network, Kept: []Kept{}, Removed: []types.GCAttachment{}}
	for _, path := range slices.Sorted(maps.Keys(unread)) {
		c.Unread = append(c.Unread, unread[path].Error())
	}
	return c
}

// add notes what became of an attachment: it is kept if there is a reason.
func (c *Collection) add(a types.GCAttachment, why string) {
	if why == "" {
		c.Removed = append(c.Removed, a)
	} else {
		c.Kept = append(c.Kept, Kept{a, why})
	}
}

// del calls DEL for an attachment.
func (n Node) del(ctx context.Context, list *libcni.NetworkConfigList, a *cached) error {
	rt := &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
	if err := n.CNI().DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("remove stale attachment %s %s: %w", a.ContainerID, a.IfName, err)
	}
	return nil
}

// reasonToKeep says why an attachment may be in use, "" if it is gone for certain.
func reasonToKeep(a *cached, h *holding, named []types.GCAttachment) string {
	if slices.Contains(named, a.name()) {
		return "it is named"
	}
	if a.NetNS == "" {
		return "its result names no network namespace"
	}
	ns, err := netns.Open(a.NetNS)
	switch {
	case err == nil:
		_ = ns.Close()
		return "its network namespace " + a.NetNS + " is there"
	case !errors.Is(err, netns.ErrNotExist):
		return "its network namespace can't be looked at: " + err.Error()
	case h != nil && h.newest.Since.After(a.since):
		return "its " + h.newest.What + " is newer than its result"
	}
	end, err := attach.HostEnd(&plugin.Request{Key: keyOf(a.Network, a.name())})
	switch {
	case err != nil:
		return "its host end can't be looked at: " + err.Error()
	case end != nil:
		return a.NetNS + " is gone, but its link " + end.Attrs().Name + " is there, and so its network namespace"
	}
	return ""
}

// keepUnknown refuses to go on if something is held for attachments that are neither in the cache nor named. What is young may be that
// of an ADD under way.
func (n Node) keepUnknown(c *Collection, keys []string, all holdings, known []*cached, unread map[string]error, named []types.GCAttachment) error {
	explained := map[string]bool{}
	for _, a := range named {
		explained[keyOf(c.Network, a).String()] = true
	}
	for _, a := range known {
		explained[keyOf(c.Network, a.name()).String()] = true
	}
	var unknown []string
	var first types.GCAttachment
	for _, key := range keys {
		h := all[key]
		switch {
		case explained[key]:
		case time.Since(h.newest.Since) < settled:
			c.add(h.GCAttachment, "it is not a minute old")
		default:
			if unknown == nil {
				first = h.GCAttachment
			}
			if err := unread[n.resultOf(c.Network, h.GCAttachment)]; err != nil {
				h.texts = append(h.texts, err.Error())
			}
			unknown = append(unknown, fmt.Sprintf("%s/%s (%s)", h.ContainerID, h.IfName, strings.Join(h.texts, ", ")))
		}
	}
	if unknown == nil {
		return nil
	}
	const most = 10
	count := len(unknown)
	if count > most {
		unknown = append(unknown[:most], fmt.Sprintf("and %d more", count-most))
	}
	return plugin.Errorf(fmt.Sprintf("if the runtime keeps its results elsewhere, name that directory with --cache-dir, such as /var/lib/cni/multus; "+
		"name what is in use with --valid %s/%s; remove what is gone with `cnictl del %s --id %s --ifname %s`",
		first.ContainerID, first.IfName, c.Network, first.ContainerID, first.IfName),
		"nothing is removed: %s has no result of %d attachments of network %s for which something is held, so that they may be in use: %s",
		n.resultsDir(), count, c.Network, strings.Join(unknown, "; "))
}
