package iptables

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Use is one of the things that rules are made for.
type Use struct {
	name     string // in ownersFile
	table    string
	prefixes []string // of containers' chains; the second is that of earlier versions of the reference plugin
	comment  string   // what the comments of containers' rules begin with
}

const (
	natTable    = "nat"
	filterTable = "filter"
	portsPrefix = "CNI-DN-"
)

// The uses.
var (
	Masquerading = Use{"masquerade", natTable, []string{"CNI-"}, ""}
	PortMapping  = Use{"ports", natTable, []string{portsPrefix, "CNI-SN-"}, "dnat "}
	Forwarding   = Use{"forward", filterTable, nil, ""}
)

// Tables are those of iptables-nft in which its rules are.
func (u Use) Tables() []nftables.Table {
	return []nftables.Table{nftTable(&ipv4, u.table), nftTable(&ipv6, u.table)}
}

// chainLength is the length of the names of containers' chains.
const chainLength = 28

// chains returns the names of containers' chains, as the reference plugins make them. A container's interfaces share them.
func (u Use) chains(keys ...plugin.Key) (names []string) {
	for _, key := range keys {
		sum := sha512.Sum512([]byte(key.Network + key.ContainerID))
		for _, prefix := range u.prefixes {
			names = append(names, (prefix + hex.EncodeToString(sum[:]))[:chainLength])
		}
	}
	return names
}

// isChain reports whether a chain can be a container's.
func (u Use) isChain(name string) bool {
	return len(name) == chainLength && slices.ContainsFunc(u.prefixes, func(prefix string) bool {
		hash, ok := strings.CutPrefix(name, prefix)
		return ok && strings.Trim(hash, "0123456789abcdef") == ""
	})
}

// commentOf is the comment of a container's rules.
func (u Use) commentOf(key plugin.Key) string {
	const most = 255 // the reference plugin cuts a longer one two characters earlier
	comment := fmt.Sprintf(`%sname: "%s" id: "%s"`, u.comment, key.Network, key.ContainerID)
	if len(comment) > most {
		comment = comment[:most-2] + "..."
	}
	return "-m comment --comment " + quote(comment)
}

// Wants is what an attachment is to have for a use.
type Wants struct {
	use    Use
	chains []string // that others use too
	shared []rule   // that others need too, and that stay
	own    []rule
	err    error // of the configuration

	ports     netfilter.PortMaps // which nobody else may have
	localhost string             // is the link towards them if 127.0.0.1 is to reach them, else ""
}

func (w Wants) rules(f *family) []rule { return in(f, slices.Concat(w.shared, w.own)) }

// Masquerade returns the rules of the container's chain and the jumps to it. What stays in the networks of the addresses
// comes first in the chain.
func Masquerade(key plugin.Key, addrs []netip.Prefix) Wants {
	w := Wants{use: Masquerading}
	chain, comment := w.use.chains(key)[0], w.use.commentOf(key)
	for _, p := range addrs {
		f := familyOf(p.Addr())
		w.own = append(w.own,
			rule{family: f, chain: chain, spec: "-d " + p.Masked().String() + " " + comment + " -j ACCEPT", first: true},
			rule{family: f, chain: chain, spec: "! -d " + f.multicast + " " + comment + " -j MASQUERADE"},
			rule{family: f, chain: "POSTROUTING", spec: "-s " + alone(p.Addr()) + " " + comment + " -j " + chain})
	}
	return w
}

// ValidateChain refuses names that iptables would take for something else.
func ValidateChain(key, name string) error {
	const longest = 28
	if isName(name, longest) {
		return nil
	}
	return plugin.ConfigError(fmt.Sprintf("use a name of at most %d letters, digits and dashes", longest), "%s: %q is no name of a chain", key, name)
}
