package node

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/pkg/operator/netconf"
)

// Network is a network of this node.
type Network struct {
	Name        string   `json:"network"`
	File        string   `json:"file,omitempty"` // "" if only attachments name it
	CNIVersion  string   `json:"cniVersion,omitempty"`
	Plugins     []string `json:"plugins"` // their types, in order
	Pools       []*Pool  `json:"pools"`
	Attachments int      `json:"attachments"`
	Gone        int      `json:"gone"` // of the attachments, those whose namespace is gone
	Addresses   int      `json:"addresses"`

	Shared *Shared `json:"shared,omitempty"` // if its addresses are in etcd, and that was asked

	List *libcni.NetworkConfigList `json:"-"` // nil if only attachments name it
}

// Load reads the networks of a directory, in the order in which libcni looks for one: lists before single plugins, each by the files' names.
// A file that can't be used does not hide the others.
func Load(dir string) (networks []*Network, broken []Unread, err error) {
	files, err := libcni.ConfFiles(dir, []string{".conflist"})
	single, err2 := libcni.ConfFiles(dir, []string{".conf", ".json"})
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, fmt.Errorf("look for networks: %w", err)
	}
	for _, file := range append(files, single...) {
		list, err := netconf.Load(file)
		if err != nil {
			broken = append(broken, Unread{What: file, Why: err.Error()})
			continue
		}
		networks = append(networks, newNetwork(list, file))
	}
	return networks, broken, nil
}

func newNetwork(list *libcni.NetworkConfigList, file string) *Network {
	w := &Network{Name: list.Name, File: file, CNIVersion: list.CNIVersion, Plugins: []string{}, Pools: []*Pool{}, List: list}
	for _, p := range list.Plugins {
		w.Plugins = append(w.Plugins, p.Network.Type)
	}
	return w
}

// LoadFile reads a network's file.
func LoadFile(path string) (*Network, error) {
	list, err := netconf.Load(path)
	if err != nil {
		return nil, fmt.Errorf("%s can't be used: %w", path, err)
	}
	return newNetwork(list, path), nil
}

// readNetworks notes the networks. Of two with one name the first counts, as for libcni.
func (n *Node) readNetworks(o Options) {
	dir := cmp.Or(o.ConfDir, DefaultConfDir)
	networks, broken, err := Load(dir)
	if err != nil {
		n.couldNot(dir, err, "")
	}
	n.Unread = append(n.Unread, broken...)
	for _, w := range networks {
		if n.Network(w.Name) == nil {
			n.Networks = append(n.Networks, w)
			w.ReadPools(o.Plugins)
		}
	}
}

// count counts what is held of the network's pools.
func (w *Network) count(t Holding, is State) {
	address, ok := t.Address()
	if !ok {
		return
	}
	w.Addresses++
	for _, p := range w.Pools {
		if !p.pool.Contains(address) {
			continue
		}
		p.Used++
		if is.IsOver() {
			p.Gone++
		}
	}
}
