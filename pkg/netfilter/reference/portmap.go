package reference

import (
	"context"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// hostPorts are the tables of portmap.
func hostPorts() []furniture {
	var list []furniture
	for _, f := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		// Until 1.8 the second had what is published on one address.
		list = append(list, furniture{nftables.Table{Family: f, Name: "cni_hostport"}, []string{"hostports", "hostip_hostports", "masquerading"}})
	}
	return list
}

// HostPortTables are the tables in which DelPortMaps looks.
func HostPortTables() []nftables.Table {
	return []nftables.Table{hostPorts()[0].table, hostPorts()[1].table}
}

// DelPortMaps removes the published ports of an attachment. Their rules tell the
// container, but neither the network nor the interface: removed are those that
// lead to one of the addresses that the attachment had (hint), or if they are
// not known, all of the container's unless libcni's cache has another
// attachment of it. The DEL of the last one removes what is left that way.
func DelPortMaps(ctx context.Context, c *nft.Conn, key plugin.Key, hint []netip.Prefix) error {
	cache := &results{}
	return remove(ctx, c, hostPorts(), func(r *nftables.Rule) (bool, error) {
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
func GCPortMaps(ctx context.Context, c *nft.Conn, valid []plugin.Key) error {
	cache := &results{}
	keep := make([]string, len(valid))
	for i, k := range valid {
		keep[i] = k.ContainerID
	}
	slices.Sort(keep)
	return remove(ctx, c, hostPorts(), func(r *nftables.Rule) (bool, error) {
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
func publisher(r *nftables.Rule) (containerID string, addr netip.Addr) {
	to, dnat := addressesOf(r)
	if r.Chain.Name == "masquerading" {
		dnat = to
	}
	if !dnat.IsValid() {
		return "", dnat
	}
	return commentOf(r), dnat
}
