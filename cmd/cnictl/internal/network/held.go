package network

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins"
)

// holdings is what the host has of a network's attachments, whether libcni knows of them or not, by their keys as plugin.Key.String has
// them.
type holdings map[string]*holding

type holding struct {
	types.GCAttachment             // as far as it can be told from the key
	newest             plugin.Held // the newest thing of which it is known since when
	texts              []string    // all of it, for people
}

// of returns what the attachment has.
func (h holdings) of(key string, a types.GCAttachment) *holding {
	if h[key] == nil {
		h[key] = &holding{GCAttachment: a}
	}
	return h[key]
}

// add notes what an attachment has.
func (h holdings) add(network string, thing plugin.Held) {
	k := thing.Key
	if thing.Owner == "" {
		thing.Owner = k.String()
	}
	id, ifName, _ := strings.Cut(strings.TrimPrefix(thing.Owner, network+"/"), "/") // of a long key a part
	of := h.of(thing.Owner, types.GCAttachment{ContainerID: id, IfName: ifName})
	if k.ContainerID != "" {
		of.GCAttachment = types.GCAttachment{ContainerID: k.ContainerID, IfName: k.IfName}
	}
	if thing.Since.After(of.newest.Since) {
		of.newest = thing
	}
	text := thing.What
	if !thing.Since.IsZero() {
		text += " since " + thing.Since.UTC().Format(time.RFC3339)
	}
	if !slices.Contains(of.texts, text) {
		of.texts = append(of.texts, text)
	}
}

// findHoldings asks our plugins, whichever the network uses by now, what they hold.
func (n Node) findHoldings(ctx context.Context, list *libcni.NetworkConfigList) (holdings, error) {
	var stores []plugin.Store
	configs := []*conf.Object{conf.New()}
	for _, p := range list.Plugins {
		config, err := conf.Parse(p.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the configuration of plugin %s: %w", p.Network.Type, err)
		}
		configs = append(configs, objectsIn(config.Lenient())...)
	}
	for _, row := range plugins.All {
		holder, ok := row.Plugin.(plugin.Holder)
		for _, c := range configs {
			if ok && isFor(c, row) {
				r := &plugin.Request{Key: plugin.Key{Network: list.Name}, Config: c, Results: n.resultsDir()}
				stores = append(stores, holder.Stores(r)...)
			}
		}
	}
	things, err := link.Uninterrupted(func() ([]plugin.Held, error) { return held.List(ctx, list.Name, stores...) })
	all := holdings{}
	for _, thing := range things {
		if k := thing.Key; k.Network == list.Name && (thing.Owner != "" || k.IfName != "") {
			all.add(list.Name, thing)
		}
	}
	return all, err
}

// objectsIn returns an object and all that are in it, since plugins have configurations of others in theirs.
func objectsIn(o *conf.Object) []*conf.Object {
	all := []*conf.Object{o}
	for _, key := range o.Keys() {
		if o.Object(key).Keys() != nil {
			all = append(all, objectsIn(o.Object(key))...)
		}
		o.Objects(key, func(e *conf.Object) { all = append(all, objectsIn(e)...) })
	}
	return all
}

// isFor reports whether a plugin may be called with a configuration, by a runtime or by another plugin. An empty one stands for what
// plugins do unless they are told otherwise.
func isFor(config *conf.Object, row plugin.Descriptor) bool {
	name := ""
	config.String("type", &name)
	named := plugins.All.Find(name)
	return config.Keys() == nil || named != nil && named.Name == row.Name || row.Kind == plugin.IPAM && config.Has("ipam")
}

func keyOf(network string, a types.GCAttachment) plugin.Key {
	return plugin.Key{Network: network, ContainerID: a.ContainerID, IfName: a.IfName}
}
