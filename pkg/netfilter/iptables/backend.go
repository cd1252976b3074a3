package iptables

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Backend is the backend on iptables, in the network namespace of the thread
// that calls it. It keeps nothing between calls.
type Backend struct {
	conn *nft.Conn // nil if there is nothing of iptables-nft
}

var (
	_ netfilter.Masquerader = (*Backend)(nil)
	_ netfilter.PortMapper  = (*Backend)(nil)
	_ netfilter.Forwarder   = (*Backend)(nil)
)

// On returns the backend, which asks nf_tables over a connection. That is nil if the
// caller knows that none of iptables-nft's tables is there.
func On(conn *nft.Conn) *Backend { return &Backend{conn} }

// NATTables are the tables of iptables-nft in which masquerading and port maps are.
func NATTables() []nftables.Table {
	return []nftables.Table{nftTable(&ipv4, natTable), nftTable(&ipv6, natTable)}
}

// FilterTables are those in which what lets packets pass is.
func FilterTables() []nftables.Table {
	return []nftables.Table{nftTable(&ipv4, filterTable), nftTable(&ipv6, filterTable)}
}

// Available reports whether the host has the program that changes rules. Whether
// the kernel has what they need is only seen by adding one.
func (*Backend) Available() error {
	_, err := plainProgram(&ipv4)
	return err
}

// use is one of the things that rules are made for.
type use struct {
	name     string // in ownersFile
	table    string
	prefixes []string // of the names of containers' chains; the second is that of earlier versions of the reference plugin
	comment  string   // what the comments of containers' rules begin with
}

const portsPrefix = "CNI-DN-"

func forMasquerade() use { return use{"masquerade", natTable, []string{"CNI-"}, ""} }
func forPorts() use      { return use{"ports", natTable, []string{portsPrefix, "CNI-SN-"}, "dnat "} }
func forForward() use    { return use{"forward", filterTable, nil, ""} }

// chainLength is the length of the names of containers' chains.
const chainLength = 28

// chains returns the names of a container's chains, as the reference plugins make
// them. A container's interfaces share them.
func (u use) chains(key plugin.Key) (names []string) {
	if len(u.prefixes) == 0 {
		return nil
	}
	sum := sha512.Sum512([]byte(key.Network + key.ContainerID))
	for _, prefix := range u.prefixes {
		names = append(names, (prefix + hex.EncodeToString(sum[:]))[:chainLength])
	}
	return names
}

// isChain reports whether a chain can be a container's.
func (u use) isChain(name string) bool {
	return len(name) == chainLength && slices.ContainsFunc(u.prefixes, func(prefix string) bool {
		hash, ok := strings.CutPrefix(name, prefix)
		return ok && strings.Trim(hash, "0123456789abcdef") == ""
	})
}

// commentOf is the comment of a container's rules.
func (u use) commentOf(key plugin.Key) string {
	const most = 255 // the reference plugin cuts a longer one two characters earlier
	comment := fmt.Sprintf(`%sname: "%s" id: "%s"`, u.comment, key.Network, key.ContainerID)
	if len(comment) > most {
		comment = comment[:most-2] + "..."
	}
	return "-m comment --comment " + quote(comment)
}
