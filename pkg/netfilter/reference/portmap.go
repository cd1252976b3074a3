package reference

import (
	"context"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// hostPorts are the tables of portmap.
func hostPorts() []furniture {
	var list []furniture
	for _, family := range []uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		list = append(list, furniture{
			Table: nftables.Table{Family: family, Name: "cni_hostport"},
			// Until 1.8 the second had what is published on one address.
			perAttachment: []string{"hostports", "hostip_hostports", "masquerading"},
			static:        []string{"hostports_all", "prerouting", "output"},
		})
	}
	return list
}

// HostPortTables are the tables in which DelPortMaps looks.
func HostPortTables() []nftables.Table { return tablesOf(hostPorts()) }

// DelPortMaps removes the published ports of an attachment. Their rules tell the
// container, but neither the network nor the interface: removed are those that
// lead to one of the addresses that the attachment had (hint), or if they are
// not known, all of the container's unless libcni's cache has another
// attachment of it. The DEL of the last one removes what is left that way.
func DelPortMaps(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	cache := &results{}
	return remove(ctx, hostPorts(), func(r nftables.Installed) (bool, error) {
		owner, to := publisher(r)
		if owner != key.ContainerID {
			return false, nil
		}
		if len(hint) > 0 {
			return slices.ContainsFunc(hint, func(p netip.Prefix) bool { return p.Addr() == to }), nil
		}
		attached, err := cache.hasOther(key)
		return !attached, err
	})
}

// GCPortMaps removes the published ports of containers that are neither valid in
// this network nor in libcni's cache with any other. Without a cache nothing is
// known of other networks, and nothing is removed.
//
// An ADD of the reference plugin that is under way in another network has rules
// and no entry in the cache yet: the old portmap and GC must not be in use at
// the same time.
func GCPortMaps(ctx context.Context, _ string, valid []plugin.Key) error {
	cache := &results{}
	keep := make([]string, len(valid))
	for i, k := range valid {
		keep[i] = k.ContainerID
	}
	slices.Sort(keep)
	return remove(ctx, hostPorts(), func(r nftables.Installed) (bool, error) {
		owner, _ := publisher(r)
		if owner == "" {
			return false, nil
		}
		if _, isValid := slices.BinarySearch(keep, owner); isValid {
			return false, nil
		}
		if known, err := cache.exists(); err != nil || !known {
			return false, err
		}
		attached, err := cache.hasOther(plugin.Key{ContainerID: owner})
		return !attached, err
	})
}

// publisher returns the id and the address of the container that a rule is for,
// "" if it is not one of portmap's.
func publisher(r nftables.Installed) (containerID string, to netip.Addr) {
	to = r.DNAT
	if r.Chain == "masquerading" {
		to = r.Destination
	}
	if !to.IsValid() {
		return "", to
	}
	return r.Comment, to
}
