package installed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cnibox/cnibox/pkg/ipam/etcdpool"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// Stores implements plugin.Holder: what this host holds of the request's network, if its addresses are in etcd.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	kind := ""
	ipam := r.Config.Object("ipam")
	ipam.String("type", &kind)
	if r.Network == "" || (plugin.Table{settings.Row(nil)}).Find(kind) == nil {
		return nil
	}
	return []plugin.Store{store{etcdpool.NetworkOf(r.Network, ipam, r.Path), notes.Of(r)}}
}

// store is what this host notes that it holds of a network.
type store struct {
	network etcdpool.Network
	notes   notes.Dir
}

// Etcd implements node.Sharer.
func (s store) Etcd() etcdpool.Network { return s.network }

// Held lists the addresses, and what etcd may not know of.
func (s store) Held(context.Context, string) (list []plugin.Held, err error) {
	held, err := s.notes.Keys(s.network.Name, "held")
	for _, k := range held {
		has, _ := s.notes.ReadHeld(k)
		h := plugin.Held{Key: k, Since: has.Since}
		for _, a := range has.Addresses {
			own := etcdpool.Held{ContainerID: k.ContainerID, IfName: k.IfName, Address: a, Lost: lostOf(has, a.String())}
			h.What, h.Own = "address "+a.String(), own
			if own.Lost != "" {
				h.What += ", which is another host's by now"
			}
			list = append(list, h)
		}
	}
	open, err2 := s.notes.Keys(s.network.Name, "open")
	for _, k := range open {
		h := plugin.Held{Key: k, What: "what etcd may not know to be free", Own: etcdpool.Held{ContainerID: k.ContainerID, IfName: k.IfName}}
		if file, err := os.Stat(s.notes.OpenFile(k)); err == nil {
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

// IsNote implements plugin.Noter: what is to be freed is in use by nobody.
func (s store) IsNote(_ context.Context, h plugin.Held) (bool, error) {
	own, ok := h.Own.(etcdpool.Held)
	return ok && !own.Address.IsValid(), nil
}

// Release calls DEL. While etcd can't be reached that is put down.
func (s store) Release(ctx context.Context, list []plugin.Held) error {
	done := map[plugin.Key]bool{}
	var errs []error
	for _, h := range list {
		if done[h.Key] {
			continue
		}
		done[h.Key] = true
		r, err := s.network.Request(plugin.Del, h.Key)
		if err != nil {
			return err
		}
		if err := (Plugin{}).Del(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.Key, err))
		}
	}
	return errors.Join(errs...)
}
