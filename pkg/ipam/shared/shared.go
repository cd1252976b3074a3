// Package shared is what cnictl sees of addresses that several hosts share, which the plugin etcd hands out.
package shared

import (
	"context"
	"net/netip"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the one whose addresses are shared.
const Plugin = "etcd"

// Store is what this host notes that it holds of a network. Each thing is a Held. It asks etcd for the rest that it returns.
type Store interface {
	plugin.Store

	// Name is the network's.
	Name() string

	// Report says what all hosts hold.
	Report(ctx context.Context) (*Report, error)

	// Renew renews this host's lease, frees what could not be freed before, and reports of this host alone.
	Renew(ctx context.Context) (*Report, error)
}

// Report is what hosts hold of a network.
type Report struct {
	Network string `json:"network"`
	Host    string `json:"host"` // what this host is called
	Hosts   []Host `json:"hosts"`
	Pools   []Pool `json:"pools,omitempty"`
	Held    []Held `json:"held"`           // by this host
	Open    []Held `json:"open,omitempty"` // what must be freed when etcd can be reached, or again a little later
}

// Host is one that has joined.
type Host struct {
	Name      string    `json:"name"`
	MachineID string    `json:"machineID,omitempty"`
	Since     time.Time `json:"since"`
	Lease     string    `json:"lease"`          // as etcdctl writes it
	Left      int64     `json:"secondsLeft"`    // until its addresses are free, if nothing is heard of it
	Grace     int64     `json:"secondsGranted"` // of which these are left
}

// Pool is a range set.
type Pool struct {
	Subnet string         `json:"subnet"` // of the first range
	Range  string         `json:"range"`
	Size   uint64         `json:"size"`
	Used   uint64         `json:"used"`
	By     map[string]int `json:"by"` // how many each host has
}

// Held is an address of an attachment. One without an address is what etcd may not know to be free.
type Held struct {
	ContainerID string     `json:"containerID"`
	IfName      string     `json:"ifname"`
	Address     netip.Addr `json:"address,omitzero"`
	Since       time.Time  `json:"since,omitzero"`
	Lost        string     `json:"lost,omitempty"` // who has it instead, since this host was not heard of for too long
}
