package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/etcd"
)

// The plugins between which leases move.
const (
	Etcd      = shared.Plugin
	HostLocal = "host-local"
)

// Move is one that can be done.
type Move struct {
	Network string
	To      string // Etcd or HostLocal

	from, with *node.Network // as it is, and as it will be
	etcd       etcd.Network
	dir        string // of host-local's leases
	caches     []string
	plugins    plugin.Table
}

// NewMove looks at the network as it is on the node and at the file that it is to have.
func NewMove(n *node.Node, o node.Options, network, to, file string) (*Move, error) {
	from := n.Network(network)
	if from == nil || from.File == "" {
		return nil, lookup.UnknownNetwork(network, o.ConfDir, n.Networks, n.Unread)
	}
	with, err := node.LoadFile(file)
	if err != nil {
		return nil, err
	}
	if with.Name != network || filepath.Ext(file) != filepath.Ext(from.File) {
		return nil, plugin.CodeErrorf(types.ErrInvalidNetworkConfig, "give it the same name and ending", "%s is of network %q, and is to take the place of %s, of network %q", file, with.Name, from.File, network)
	}
	m := &Move{Network: network, To: to, from: from, with: with, dir: lease.DefaultDir, plugins: o.Plugins, caches: slices.Concat(node.CacheDirs, o.CacheDirs)}
	inEtcd, inFiles := with, from
	if to == HostLocal {
		inEtcd, inFiles = from, with
	}
	if m.ipam(with, to) == nil {
		return nil, plugin.ConfigError("give it that ipam", "network %s has no ipam of type %s in %s", network, to, file)
	}
	if ipam := m.ipam(inFiles, HostLocal); ipam != nil {
		ipam.String("dataDir", &m.dir)
	} else {
		m.findDir(n)
	}
	if ipam := m.ipam(inEtcd, Etcd); ipam != nil {
		m.etcd = etcd.NetworkOf(network, ipam, filepath.Join(m.caches[0], "results"))
		return m, nil
	}
	// The file may have been exchanged already. Attachments have results with the configuration before.
	for _, s := range n.Shared() {
		if of, ok := s.(etcd.Network); ok && of.Name() == network {
			m.etcd = of
			return m, nil
		}
	}
	return nil, plugin.ConfigError("cnictl show networks says where its addresses are", "network %s has no ipam of type %s in %s, and no attachment that was made with one: its leases are not there", network, Etcd, inEtcd.File)
}

// findDir looks where host-local has leases of the network, after its file was exchanged.
func (m *Move) findDir(n *node.Node) {
	for _, s := range n.Stores {
		if dir, ok := s.(lease.Dir); ok {
			if left, _ := dir.Held(context.Background(), m.Network); len(left) > 0 {
				m.dir = string(dir)
			}
		}
	}
}

// ipam returns the object ipam of a network that calls a plugin, nil if there is none.
func (m *Move) ipam(of *node.Network, name string) (found *conf.Object) {
	for _, p := range netconf.Of(of.List, of.File, m.plugins.Find).Inside() {
		if ipam := p.IPAM(); ipam != nil && ipam.Is(name) {
			found = ipam.Config
		}
	}
	return found
}

// Plan says what there is to move, and makes sure that etcd can be asked.
func (m *Move) Plan(ctx context.Context) (list []shared.Held, err error) {
	report, err := m.etcd.Report(ctx)
	if err != nil {
		return nil, err
	}
	if m.To == HostLocal {
		return slices.DeleteFunc(report.Held, func(h shared.Held) bool { return !h.Address.IsValid() }), nil
	}
	left, err := lease.Dir(m.dir).Held(ctx, m.Network)
	for _, h := range left {
		if l, ok := h.Own.(lease.Lease); ok {
			list = append(list, shared.Held{ContainerID: h.Key.ContainerID, IfName: h.Key.IfName, Address: l.Address, Since: h.Since})
		}
	}
	return list, err
}

// Run moves the leases, and puts the network's new file in place of the old one.
func (m *Move) Run(ctx context.Context) (*etcd.Moved, error) {
	move := m.etcd.Import
	if m.To == HostLocal {
		move = m.etcd.Export
	}
	first, err := move(ctx, m.dir, true)
	if err != nil {
		return nil, err
	}
	if err := m.exchange(); err != nil {
		return nil, err
	}
	second, err := move(ctx, m.dir, false)
	if err != nil {
		return nil, plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this", "the file is exchanged, and not all leases are moved: %w", err)
	}
	moved := map[plugin.Key]bool{}
	for _, h := range second.Moved {
		moved[m.key(h)] = true
	}
	var errs []error
	for _, h := range first.Moved {
		if !moved[m.key(h)] { // a DEL came meanwhile, which did not know of the copy
			errs = append(errs, m.release(ctx, m.key(h)))
		}
	}
	return second, errors.Join(append(errs, m.rewriteResults(moved))...)
}

func (m *Move) key(h shared.Held) plugin.Key {
	return plugin.Key{Network: m.Network, ContainerID: h.ContainerID, IfName: h.IfName}
}

func (m *Move) exchange() error {
	file, err := os.Stat(m.from.File)
	if err != nil {
		return err
	}
	text, err := state.Read(m.with.File)
	if err != nil {
		return err
	}
	return state.Write(m.from.File, text, file.Mode().Perm())
}

// release frees what an attachment has where leases are moved to.
func (m *Move) release(ctx context.Context, k plugin.Key) error {
	if m.To == HostLocal {
		store, err := lease.NewStore(m.dir, m.Network, "")
		if err == nil {
			_, err = store.Release(ctx, k)
		}
		return err
	}
	return m.etcd.Del(ctx, k)
}

// rewriteResults gives the results of attachments the network's new configuration.
func (m *Move) rewriteResults(of map[plugin.Key]bool) error {
	var errs []error
	for k := range of {
		for _, dir := range m.caches {
			if err := rewrite(node.PathOf(dir, k), m.with.List.Bytes); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("give the result of %s the new configuration: %w", k, err))
			}
		}
	}
	return errors.Join(errs...)
}

func rewrite(path string, config []byte) error {
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	text, err := state.Read(path)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	if members["config"], err = json.Marshal(config); err != nil {
		return err
	}
	if text, err = json.Marshal(members); err != nil {
		return err
	}
	return state.Write(path, text, file.Mode().Perm())
}
