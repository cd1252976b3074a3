package attach

import (
	"math"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/result"
)

// The keys that several plugins have. Most of them say in words of their own what one does there.

// IPAMKey is the key "ipam".
func IPAMKey(required bool, doc string) keys.Key {
	return keys.Key{Name: "ipam", Type: keys.Object, Required: required, Doc: doc}
}

// DNSKey is the key "dns".
func DNSKey(instead, doc string) keys.Key {
	return keys.Key{Name: "dns", Type: keys.Object, Default: instead, Doc: doc, Keys: result.DNSKeys(), Brief: true}
}

// MTUKey is the key "mtu" as ReadMTU reads it.
func MTUKey(instead, doc string) keys.Key {
	return keys.Key{Name: "mtu", Type: keys.Int, Range: &keys.Range{Min: MinMTU, Max: math.MaxUint16, Zero: true, Negative: true}, Default: instead, Doc: doc}
}

// MACKey is the key "mac" as ReadMACKey reads it.
func MACKey(doc string) keys.Key {
	return keys.Key{Name: "mac", Type: keys.String, Form: keys.MAC, Default: "made from the IP address", Doc: doc}
}

// MasterKeys are the keys "master" and "linkInContainer" as ReadMaster reads them.
func MasterKeys(required bool, instead, doc string) keys.Table {
	return keys.Table{
		{Name: "master", Type: keys.String, Required: required, Default: instead, Doc: doc},
		{Name: "linkInContainer", Type: keys.Bool, Default: "`false`", Since: "1.3.0", Doc: "The master is a link of the container."},
	}
}

// MasqueradeKeys are the keys "ipMasq" and "ipMasqBackend" as ReadMasquerade reads them.
func MasqueradeKeys() keys.Table {
	return keys.Table{
		{Name: "ipMasq", Type: keys.Bool, Default: "`false`",
			Doc: "Masquerade what the container sends to addresses outside its subnet, except multicast ([netfilter](../operate/netfilter.md))."},
		{Name: "ipMasqBackend", Type: keys.String, Words: []string{"nftables", "iptables"}, Since: "1.6.0", Default: "see [backends](../operate/netfilter.md#backends)",
			Doc: "The packet filter that masquerades. With `iptables` the rules are those of the reference plugin."},
	}
}

// AddressKeys are the keys "enabledad" and "acceptRA" as Complete reads them.
func AddressKeys(dad, ra, since string) keys.Table {
	return keys.Table{
		{Name: "enabledad", Type: keys.Bool, Default: "`false`", Since: since, Doc: dad},
		{Name: "acceptRA", Type: keys.Bool, Default: "`false`", Since: keys.Ours, Doc: ra},
	}
}

// AskedMAC is the key "mac" of runtimeConfig and args.cni as ReadMAC reads them.
func AskedMAC() keys.Table {
	return keys.Table{{Name: "mac", Type: keys.String, Form: keys.MAC, Doc: "The MAC address of the container's interface."}}
}
