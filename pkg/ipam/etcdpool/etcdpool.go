// Package etcdpool is what cnibox-etcd and cnictl say to each other. cnictl is without the client of etcd: it runs cnibox-etcd, with a verb for
// argument and a network's configuration on standard input, and reads a report.
package etcdpool

import (
	"net/netip"
	"time"
)

// The verbs of cnibox-etcd besides those of CNI.
const (
	List   = "list"   // report
	Keep   = "keep"   // renew this host's lease, free what could not be freed before, and report of this host alone
	Import = "import" // take this host's leases of host-local into etcd
	Export = "export" // give this host's addresses in etcd back to host-local
)

// Report is what there is of a network in etcd.
type Report struct {
	Network string `json:"network"`
	Host    string `json:"host"` // what this host is called
	Hosts   []Host `json:"hosts"`
	Pools   []Pool `json:"pools,omitempty"`
	Held    []Held `json:"held"`           // by this host
	Open    []Held `json:"open,omitempty"` // what is to be freed when etcd can be reached, or again a little later
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

// Held is an address of an attachment.
type Held struct {
	ContainerID string     `json:"containerID"`
	IfName      string     `json:"ifname"`
	Address     netip.Addr `json:"address,omitzero"`
	Since       time.Time  `json:"since,omitzero"`
	Lost        string     `json:"lost,omitempty"` // who has it instead, since this host was not heard of for too long
}

// Moved is what came of a move of leases.
type Moved struct {
	Moved []Held `json:"moved"`
	Left  []Left `json:"left,omitempty"`
}

// Left is a lease that was not moved.
type Left struct {
	Held
	Why string `json:"why"`
}
