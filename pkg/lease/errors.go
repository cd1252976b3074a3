package lease

import (
	"fmt"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// HeldError says that the attachment has an address of the pool already.
type HeldError struct {
	Pool    int // the pool's Index
	Address netip.Addr
	Owner   plugin.Attachment
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s has been allocated to %s, duplicate allocation is not allowed", e.Address, Name(e.Owner))
}

// TakenError says that the wanted address is another attachment's. By is zero
// when the file is not a lease (a directory, say).
type TakenError struct {
	Pool    Pool
	Address netip.Addr
	By      plugin.Attachment
}

func (e *TakenError) Error() string {
	by := "something that is not a lease"
	if e.By.ContainerID != "" {
		by = Name(e.By)
	}
	return fmt.Sprintf("requested IP address %s is not available in range set %s: it is held by %s", e.Address, e.Pool, by)
}

// FullError says that the pool has no free address.
type FullError struct {
	Pool   Pool
	Leases []Lease // those in the pool
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no IP addresses available in range set: %s", e.Pool)
}

// Name returns an attachment as people read it.
func Name(a plugin.Attachment) string {
	if a.IfName == "" {
		return "container " + a.ContainerID
	}
	return fmt.Sprintf("container %s, interface %s", a.ContainerID, a.IfName)
}
