package iptables

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Kind is one of the things that attachments have rules for. Its text is that in ownersFile.
type Kind string

// The kinds.
const (
	Masquerading Kind = "masquerade"
	PortMapping  Kind = "ports"
	Forwarding   Kind = "forward"
)

const (
	natTable    = "nat"
	filterTable = "filter"
	portsPrefix = "CNI-DN-"
)

func (k Kind) table() string {
	if k == Forwarding {
		return filterTable
	}
	return natTable
}

// Tables are those of iptables-nft in which its rules are.
func (k Kind) Tables() []nftables.Table {
	return []nftables.Table{nftTable(&ipv4, k.table()), nftTable(&ipv6, k.table())}
}

// prefixes are those of containers' chains; the second is that of earlier versions of the reference plugin.
func (k Kind) prefixes() []string {
	return map[Kind][]string{Masquerading: {"CNI-"}, PortMapping: {portsPrefix, "CNI-SN-"}}[k]
}

// chainLength is the length of the names of containers' chains.
const chainLength = 28

// isChain reports whether a chain can be a container's.
func (k Kind) isChain(name string) bool {
	return len(name) == chainLength && slices.ContainsFunc(k.prefixes(), func(prefix string) bool {
		hash, ok := strings.CutPrefix(name, prefix)
		return ok && strings.Trim(hash, "0123456789abcdef") == ""
	})
}

// IsContainers reports whether a chain can be that of a container of any kind.
func IsContainers(chain string) bool {
	return Masquerading.isChain(chain) || PortMapping.isChain(chain)
}

// IsConstant reports whether a chain is one for all attachments in which no ADD but the first changes anything, and no DEL.
func IsConstant(chain string) bool {
	return chain == markChain || chain == masqChain || chain == markedChain
}

// IsMentioned reports whether a rule, in the kernel's form, or a name has in it what is ours or the reference plugins'.
func IsMentioned(text []byte) bool {
	return bytes.Contains(text, []byte("CNI")) || bytes.Contains(text, []byte("cnibox"))
}

// owner is an attachment, for one kind of its rules.
type owner struct {
	kind Kind
	key  plugin.Key
}

// chains returns the names of the container's chains, as the reference plugins make them. Its interfaces share them.
func (o owner) chains() (names []string) {
	sum := sha512.Sum512([]byte(o.key.Network + o.key.ContainerID))
	for _, prefix := range o.kind.prefixes() {
		names = append(names, (prefix + hex.EncodeToString(sum[:]))[:chainLength])
	}
	return names
}

// chainsOf returns the containers' chains of some owners.
func chainsOf(owners map[owner]bool) map[string]bool {
	chains := map[string]bool{}
	for o := range owners {
		for _, chain := range o.chains() {
			chains[chain] = true
		}
	}
	return chains
}

// comment is that of the container's rules.
func (o owner) comment() string {
	const longest = 255 // the reference plugin cuts a longer one two characters earlier
	text := fmt.Sprintf(`%sname: "%s" id: "%s"`, map[Kind]string{PortMapping: "dnat "}[o.kind], o.key.Network, o.key.ContainerID)
	if len(text) > longest {
		text = text[:longest-2] + "..."
	}
	return "-m comment --comment " + quote(text)
}

// namedBy returns the network and the container that a rule's comment names, without an interface.
func namedBy(r rule) (key plugin.Key, ok bool) {
	_, names, _ := strings.Cut(strings.ReplaceAll(r.spec, `\"`, `"`), "name: ")
	n, _ := fmt.Sscanf(names, "%q id: %q", &key.Network, &key.ContainerID)
	return key, n == 2
}

// Rules is what an attachment is to have of one kind.
type Rules struct {
	owner  owner
	chains []string // that others use too
	shared []rule   // that others need too, and that stay
	own    []rule
	err    error // of the configuration

	ports     spec.PortNeeds // which nobody else may have
	localhost string         // is the link towards them if 127.0.0.1 is to reach them, else ""
}

func (r Rules) ofFamily(f *family) []rule { return ofFamily(f, slices.Concat(r.shared, r.own)) }

// MasqueradeRules returns the rules of the container's chain and the jumps to it. The rules for packets that stay in the networks
// of the addresses come first in the chain.
func MasqueradeRules(key plugin.Key, addrs []netip.Prefix) Rules {
	r := Rules{owner: owner{Masquerading, key}}
	chain, comment := r.owner.chains()[0], r.owner.comment()
	for _, p := range addrs {
		f := familyOf(p.Addr())
		r.own = append(r.own,
			rule{family: f, chain: chain, spec: "-d " + p.Masked().String() + " " + comment + " -j ACCEPT", first: true},
			rule{family: f, chain: chain, spec: "! -d " + f.multicast + " " + comment + " -j MASQUERADE"},
			rule{family: f, chain: "POSTROUTING", spec: "-s " + single(p.Addr()) + " " + comment + " -j " + chain})
	}
	return r
}

// ValidateChain refuses names that iptables would take for something else.
func ValidateChain(key, name string) error {
	const longest = 28
	if isName(name, longest) {
		return nil
	}
	return plugin.ConfigError(fmt.Sprintf("use a name of at most %d letters, digits and dashes", longest), "%s: %q is no name of a chain", key, name)
}
