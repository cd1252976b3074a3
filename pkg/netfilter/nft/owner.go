package nft

import (
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Our tables: for masquerading and published ports, for forwarding, and for spoof checks.
var (
	hostTable    = nftables.Table{Family: nftables.TableFamilyINet, Name: "cnibox"}
	forwardTable = nftables.Table{Family: nftables.TableFamilyINet, Name: "cnibox-forward"}
	bridgeTable  = nftables.Table{Family: nftables.TableFamilyBridge, Name: "cnibox"}
	judgeTable   = nftables.Table{Family: nftables.TableFamilyINet, Name: "cnibox-egress"}
	guardTable   = nftables.Table{Family: nftables.TableFamilyBridge, Name: "cnibox-egress"}
)

// Purpose is what attachments have one of our tables for.
type Purpose struct {
	name  string // in the IDs of owners
	Table nftables.Table
}

// The purposes.
var (
	Masquerading  = Purpose{"masquerade", hostTable}
	Publishing    = Purpose{"portmap", hostTable}
	Forwarding    = Purpose{"forward", forwardTable}
	SpoofChecking = Purpose{"spoof check", bridgeTable}
	Judging       = Purpose{"egress", judgeTable}
	GuardingPorts = Purpose{"egress of port", guardTable}
)

// owner is an attachment, for one purpose.
type owner struct {
	id      plugin.ID
	comment string // of its elements
}

// ownerOf returns the owner that an attachment is for a purpose. The comment is the key without what nft could not read back from a
// saved ruleset; no part of a key has a colon.
func ownerOf(key plugin.Key, p Purpose) owner {
	return owner{key.ID(p.name), strings.ReplaceAll(key.String(), `"`, ":")}
}

// keyText returns the owner's key as plugin.Key.String has it.
func (o owner) keyText() string { return strings.ReplaceAll(o.comment, ":", `"`) }

// key returns what the comment says of the owner's key, which may be shortened. It says no network then, unless it is the one asked for.
func (o owner) key(network string) plugin.Key {
	key := plugin.ParseKey(o.keyText())
	if [8]byte(o.id[:8]) == plugin.NetworkHash(network) {
		key.Network = network
	}
	return key
}
