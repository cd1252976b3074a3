package etcd

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
)

// Network is one whose addresses are in etcd. It implements shared.Store: what this host holds of it is read from the host's notes, so that it is
// known while etcd is not to be reached.
type Network struct {
	name, config, results string
	notes                 notes.Dir
}

// Stores implements plugin.Holder: the request's network, if its addresses are in etcd.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	kind, ipam := "", r.Config.Object("ipam")
	ipam.String("type", &kind)
	if r.Network == "" || (plugin.Table{Row}).Find(kind) == nil {
		return nil
	}
	return []plugin.Store{NetworkOf(r.Network, ipam, r.Results)}
}

// NetworkOf returns the network with a name and an object ipam. results is the directory of libcni's results.
func NetworkOf(name string, ipam *conf.Object, results string) Network {
	config := conf.New()
	config.Set("cniVersion", plugin.CurrentVersion)
	config.Set("name", name)
	config.Set("type", Row.Name)
	config.Set("ipam", ipam)
	return Network{name, string(config.JSON()), results, notes.Of(&plugin.Request{Key: plugin.Key{Network: name}, Config: config})}
}

// Name implements shared.Store.
func (n Network) Name() string { return n.name }

// request returns one for an attachment of the network, as a runtime would make it.
func (n Network) request(command plugin.Command, k plugin.Key) (*plugin.Request, error) {
	config, err := conf.Parse([]byte(n.config))
	if err != nil {
		return nil, err
	}
	r := &plugin.Request{Command: command, Key: k, Results: n.results}
	return r, request.Read(r, config, Row)
}

// open opens the network's pool, for what is no call of a runtime.
func (n Network) open(ctx context.Context) (*pool, error) {
	r, err := n.request(plugin.Status, plugin.Key{})
	if err != nil {
		return nil, err
	}
	return open(ctx, r)
}

// Held lists the addresses, and what etcd may not know of.
func (n Network) Held(context.Context, string) (list []plugin.Held, err error) {
	keys, err := n.notes.Keys(n.name, "held")
	for _, k := range keys {
		has, _ := n.notes.ReadHeld(k)
		h := plugin.Held{Key: k, Since: has.Since}
		for _, a := range has.Addresses {
			own := shared.Held{ContainerID: k.ContainerID, IfName: k.IfName, Address: a, Lost: lostOf(has, a.String())}
			h.What, h.Own = "address "+a.String(), own
			if own.Lost != "" {
				h.What += ", which is another host's by now"
			}
			list = append(list, h)
		}
	}
	open, err2 := n.notes.Keys(n.name, "open")
	for _, k := range open {
		h := plugin.Held{Key: k, What: "what etcd may not know to be free", Own: shared.Held{ContainerID: k.ContainerID, IfName: k.IfName}}
		if file, err := os.Stat(n.notes.OpenFile(k)); err == nil {
			h.Since = file.ModTime()
		}
		list = append(list, h)
	}
	return list, errors.Join(err, err2)
}

// lostOf returns who has an address by now, "" if it is not lost.
func lostOf(has notes.Held, address string) string {
	for _, text := range has.Lost {
		if strings.HasPrefix(text, address+" ") {
			return text
		}
	}
	return ""
}

// IsNote implements plugin.Noter: what must be freed is in use by nobody.
func (n Network) IsNote(_ context.Context, h plugin.Held) (bool, error) {
	own, ok := h.Own.(shared.Held)
	return ok && !own.Address.IsValid(), nil
}

// Release calls DEL. While etcd can't be reached that is put down.
func (n Network) Release(ctx context.Context, list []plugin.Held) error {
	return releaseEach(ctx, list, n.Del)
}

// Del calls DEL for an attachment.
func (n Network) Del(ctx context.Context, k plugin.Key) error {
	r, err := n.request(plugin.Del, k)
	if err != nil {
		return err
	}
	return Plugin{}.Del(ctx, r)
}
