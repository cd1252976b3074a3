package hostlocal

import (
	"net/netip"

	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
)

const lost = "its lease was removed by someone else: restart the container, so that it gets an address of its own again"

// own returns the addresses of prevResult that lie in the ranges; others are
// another IPAM plugin's.
func (c *config) own(r *plugin.Request) []netip.Addr {
	if r.PrevResult == nil {
		return nil
	}
	var addresses []netip.Addr
	for _, ip := range plugin.AddressesOf(r.PrevResult, r.IfName) {
		if a := plugin.Addr(ip.Address.IP); c.setOf(a) >= 0 {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// compare checks that the attachment holds each address.
func compare(addresses []netip.Addr, a plugin.Attachment, store *lease.Store) error {
	for _, address := range addresses {
		by, held, err := store.OwnerOf(address)
		switch {
		case err != nil:
			return storeError(err, store, "look up %s", address)
		case !held:
			return plugin.Errorf(lost, "host-local: %s of %s is not held in %s", address, lease.Name(a), store.Path())
		case by != a && by != plugin.Attachment{ContainerID: a.ContainerID}:
			return plugin.Errorf(lost, "host-local: %s is not held by %s but by %s", address, lease.Name(a), lease.Name(by))
		}
	}
	return nil
}
