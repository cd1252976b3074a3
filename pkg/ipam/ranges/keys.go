package ranges

import (
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/result"
)

// Keys are those of the object "ipam" that Read reads. A range may be written into it, without "ranges".
func Keys() keys.Table {
	return append(keys.Table{
		{Name: "ranges", Type: keys.ObjectLists, Keys: rangeKeys(true),
			Doc: "Each attachment gets one address of each set. A set is a list of ranges of one family. A range can also be written without `ranges`, by its keys in `ipam` itself: one more set."},
		{Name: "routes", Type: keys.Objects, Default: "none", Keys: result.RouteKeys(),
			Doc: "They go into the result as they are."},
		{Name: "resolvConf", Type: keys.String, Default: "none",
			Doc: "A resolv.conf whose settings become the result's `dns`."},
	}, rangeKeys(false)...)
}

// rangeKeys are those of a range.
func rangeKeys(required bool) keys.Table {
	return keys.Table{
		{Name: "subnet", Type: keys.String, Form: keys.Prefix, Required: required,
			Doc: "The network that the addresses are of, such as `10.88.0.0/16`."},
		{Name: "rangeStart", Type: keys.String, Form: keys.Address, Default: "the subnet's second address",
			Doc: "The first address to hand out."},
		{Name: "rangeEnd", Type: keys.String, Form: keys.Address, Default: "the subnet's last, in IPv4 the one before the broadcast address",
			Doc: "The last address to hand out."},
		{Name: "gateway", Type: keys.String, Form: keys.Address, Default: "the subnet's second address",
			Doc: "It is not handed out, and need not lie in the subnet."},
		{Name: "exclude", Type: keys.Strings, Form: keys.AddressOrNet, Since: keys.Ours, Default: "none",
			Doc: "Addresses (`10.88.0.5`) and networks (`10.88.0.16/28`) of the subnet that are not handed out. The reference plugin hands them out."},
	}
}

// RuntimeKeys are those that the runtime fills in.
func RuntimeKeys() keys.Table {
	return keys.Table{
		{Name: "ipRanges", Type: keys.ObjectLists, Keys: rangeKeys(true), Brief: true,
			Doc: "More range sets, in the form of `ranges`. They come before those."},
		{Name: "ips", Type: keys.Strings, Form: keys.AddressOrNet,
			Doc: "Addresses to hand out, with or without a prefix length."},
	}
}

// ArgsKeys are those of "args.cni".
func ArgsKeys() keys.Table {
	return keys.Table{
		{Name: "ips", Type: keys.Strings, Form: keys.AddressOrNet,
			Doc: "Addresses to hand out, with or without a prefix length."},
	}
}
