package network

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// holdings is what the host has of a network's attachments, whether libcni knows of them or not, by their keys as plugin.Key.String has
// them.
type holdings map[string]*held

type held struct {
	types.GCAttachment           // as far as it can be told from the key
	hostEnd            string    // the name of its veth on the host, which is there as long as its namespace is
	newest             time.Time // when its newest lease was made
	texts              []string  // all of it, for people
}

// of returns what the attachment has.
func (h holdings) of(key string, a types.GCAttachment) *held {
	if h[key] == nil {
		h[key] = &held{GCAttachment: a}
	}
	return h[key]
}

// add notes what an attachment has of which only the key is known. A long one is cut off.
func (h holdings) add(network, key, text string) *held {
	id, ifName, _ := strings.Cut(strings.TrimPrefix(key, network+"/"), "/")
	of := h.of(key, types.GCAttachment{ContainerID: id, IfName: ifName})
	of.texts = append(of.texts, text)
	return of
}

func findHoldings(ctx context.Context, list *libcni.NetworkConfigList) (holdings, error) {
	all := holdings{}
	if err := all.addLeases(ctx, list); err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	ends, err := attach.HostEnds(handle, list.Name)
	if err != nil {
		return nil, err
	}
	owners, err := nft.Owners(ctx)
	if err != nil {
		return nil, err
	}
	for key, name := range ends {
		all.add(list.Name, key, "link "+name).hostEnd = name
	}
	for key, table := range owners {
		if strings.HasPrefix(key, list.Name+"/") {
			all.add(list.Name, key, "elements of table "+table)
		}
	}
	return all, nil
}

// addLeases adds the leases of host-local that name an interface.
func (h holdings) addLeases(ctx context.Context, list *libcni.NetworkConfigList) error {
	for dir := range leaseDirs(list) {
		leases, err := lease.Dir(dir).Held(ctx, list.Name)
		if err != nil {
			return err
		}
		for _, l := range leases {
			if l.Key.IfName == "" {
				continue
			}
			of := h.of(l.Key.String(), types.GCAttachment{ContainerID: l.Key.ContainerID, IfName: l.Key.IfName})
			if l.Since.After(of.newest) {
				of.newest = l.Since
			}
			of.texts = append(of.texts, l.What+" since "+l.Since.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

func keyOf(network string, a types.GCAttachment) string {
	return plugin.Key{Network: network, ContainerID: a.ContainerID, IfName: a.IfName}.String()
}

// leaseDirs returns the directories in which host-local may keep leases of a network: its default, and what is called dataDir in any
// section ipam of the plugins, also of those that other plugins call.
func leaseDirs(list *libcni.NetworkConfigList) map[string]bool {
	dirs := map[string]bool{lease.DefaultDir: true}
	for _, p := range list.Plugins {
		var config any
		if json.Unmarshal(p.Bytes, &config) == nil {
			addLeaseDirs(dirs, config)
		}
	}
	return dirs
}

func addLeaseDirs(dirs map[string]bool, config any) {
	switch config := config.(type) {
	case []any:
		for _, c := range config {
			addLeaseDirs(dirs, c)
		}
	case map[string]any:
		for key, c := range config {
			if ipam, ok := c.(map[string]any); ok && strings.EqualFold(key, "ipam") {
				for key, dir := range ipam {
					if dir, ok := dir.(string); ok && strings.EqualFold(key, "dataDir") {
						dirs[dir] = true
					}
				}
			}
			addLeaseDirs(dirs, c)
		}
	}
}
