package iptables

import "github.com/cnibox/cnibox/pkg/netfilter"

// Backend is the backend on iptables, in the network namespace of the thread
// that calls it. It keeps nothing between calls.
type Backend struct{}

var (
	_ netfilter.Masquerader = (*Backend)(nil)
	_ netfilter.PortMapper  = (*Backend)(nil)
	_ netfilter.Forwarder   = (*Backend)(nil)
)

// New returns the backend.
func New() *Backend { return &Backend{} }

// Available tells whether the host has the program that changes rules. Whether
// the kernel has what they need is only seen by adding one.
func (*Backend) Available() error {
	_, err := plainProgram(ipv4, "restore")
	return err
}
