package nft

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/holding"
	"github.com/cnibox/cnibox/pkg/nftables"
)

// What lets packets be forwarded, and keeps bridges apart, has a table of its
// own. That of a host with three attachments:
//
//	table inet cnibox-forward {
//		set pods4_v1      { ipv4_addr: 10.88.0.2, 10.89.0.2, 10.90.0.2 }
//		set pods6_v1      { ipv6_addr }
//		set protected_v1  { ifname: cni1, cni2 }
//		set same_v1       { ifname . ifname: cni1 . cni1, cni2 . cni2 }
//		set isolated_v1   { ifname . ifname: cni2 . cni2 }
//		set holders_v1_protected_cni1 …
//		set trials_v1     { mark . mark: … } # see expiry
//		chain passes_v1 {
//			ip saddr @pods4_v1 meta mark set meta mark | 0x00001000
//			ip daddr @pods4_v1 ct state established,related meta mark set meta mark | 0x00001000
//			ip daddr @pods4_v1 ct status dnat meta mark set meta mark | 0x00001000
//			… the same for IPv6
//		}
//		chain forward_v1 {
//			type filter hook forward priority filter - 10; policy accept;
//			meta mark set meta mark & 0xffffefff
//			iifname . oifname @isolated_v1 drop
//			iifname . oifname @same_v1 goto passes_v1
//			iifname @protected_v1 oifname @protected_v1 drop
//			goto passes_v1
//		}
//		chain forwarded_v1 {
//			type filter hook forward priority filter + 10; policy accept;
//			meta mark set meta mark & 0xffffefff
//		}
//	}
//
// A drop is final, and so bridges are kept apart here. An accept is not: a later
// chain at the hook still sees the packet, and it is there, mostly in chain
// FORWARD of iptables, that a host drops what it does not know. So a packet that
// may pass gets a bit of the mark, which one rule of iptables accepts
// (iptables.Marked). It has it between the two chains only: one with the bit set
// by someone else loses it, since it must not pass for that.
//
// New connections to a container pass only if they are to a published port: their
// destination was changed (ct status dnat).
//
// nf_tables can't compare two links with each other; a pair of a bridge with
// itself in a set stands for "the same one".
const forwardVersion = "_v1"

// ForwardTableName is the name of the table for forwarding, of family inet.
const ForwardTableName = "cnibox-forward"

// forwardMark is the bit. It is none of those that others use: 0x2000 for
// masquerading (portmap, netavark), 0x4000 and 0x8000 (kube-proxy), 0x0f00
// (Cilium), 0xff0000 (Tailscale), 0xffff0000 (Calico), or the numbers that
// proxies set (Istio's 0x539, WireGuard's 0xca6c).
const forwardMark = 0x1000

// Priorities at the hook around iptables' filter table, unix.NF_IP_PRI_FILTER.
const (
	priorityForward   = -10
	priorityForwarded = 10
)

const useForward = "forward"

var (
	forwardTable = nftables.Table{Family: unix.NFPROTO_INET, Name: ForwardTableName}

	pods4     = nftables.Set{Table: forwardTable, Name: "pods4" + forwardVersion, Key: []nftables.Type{nftables.TypeIPv4}, Expiring: true}
	pods6     = nftables.Set{Table: forwardTable, Name: "pods6" + forwardVersion, Key: []nftables.Type{nftables.TypeIPv6}, Expiring: true}
	protected = nftables.Set{Table: forwardTable, Name: "protected" + forwardVersion, Key: []nftables.Type{nftables.TypeLink}}
	same      = nftables.Set{Table: forwardTable, Name: "same" + forwardVersion, Key: []nftables.Type{nftables.TypeLink, nftables.TypeLink}}
	isolated  = nftables.Set{Table: forwardTable, Name: "isolated" + forwardVersion, Key: []nftables.Type{nftables.TypeLink, nftables.TypeLink}}
)

// forwarding returns the ruleset.
func forwarding() holding.Ruleset {
	const passes, before, after = "passes" + forwardVersion, "forward" + forwardVersion, "forwarded" + forwardVersion
	return holding.Ruleset{
		Table:  forwardTable,
		Owners: holding.OwnersSet(forwardTable, "owners"+forwardVersion, nftables.TypeMark, nftables.TypeLink, nftables.TypeIPv6),
		Sets:   []*nftables.Set{&pods4, &pods6, &protected, &same, &isolated},
		Chains: []nftables.Chain{
			{Name: passes, Rules: append(passRules(&ipv4, &pods4), passRules(&ipv6, &pods6)...)},
			{Name: before, Kind: "filter", Hook: nftables.HookForward, Priority: priorityForward, Rules: []nftables.Rule{
				nftables.ClearMark(forwardMark),
				nftables.MakeRule(nftables.In(&isolated, nftables.InLink(), nftables.OutLink()), nftables.Drop()),
				nftables.MakeRule(nftables.In(&same, nftables.InLink(), nftables.OutLink()), nftables.Goto(passes)),
				nftables.MakeRule(nftables.In(&protected, nftables.InLink()), nftables.In(&protected, nftables.OutLink()), nftables.Drop()),
				nftables.Goto(passes),
			}},
			{Name: after, Kind: "filter", Hook: nftables.HookForward, Priority: priorityForwarded, Rules: []nftables.Rule{
				nftables.ClearMark(forwardMark),
			}},
		},
		Trials:  holding.TrialsSet(forwardTable, "trials"+forwardVersion),
		Read:    readForward,
		OfGroup: bridgeOfGroup,
		Need: "the kernel needs nf_tables for family inet with connection tracking (CONFIG_NF_TABLES_INET, CONFIG_NFT_CT), " +
			"or must be able to load its modules (nf_tables, nft_ct)",
	}
}

func passRules(f *family, pods *nftables.Set) []nftables.Rule {
	pass := nftables.SetMark(forwardMark)
	return []nftables.Rule{
		nftables.MakeRule(is(f), nftables.In(pods, f.src()), pass),
		nftables.MakeRule(is(f), nftables.In(pods, f.dst()), isAnswer(), pass),
		nftables.MakeRule(is(f), nftables.In(pods, f.dst()), wasDNATed(), pass),
	}
}

// isAnswer lets packets of connections pass that are known, or belong to one
// that is.
func isAnswer() []nftables.Expr {
	const established, related = 1 << 1, 1 << 2 // NF_CT_STATE_BIT of linux/netfilter/nf_conntrack_common.h
	return nftables.CompareMasked(nftables.ConnState(), nftables.Native(established|related), unix.NFT_CMP_NEQ, nftables.Native(0))
}

// The kinds of things that are held here.
const (
	forwardAddress   = 1
	forwardProtected = 2
	forwardIsolated  = 3
)

// forwardThing makes a thing of its data's parts.
func forwardThing(kind uint32, link string, addr netip.Addr) holding.Thing {
	bits := addr.As16()
	return holding.Thing{
		Use:  useForward,
		Data: nftables.Join(nftables.Native(kind), nftables.Link(link), bits[:]),
	}
}

func addressThing(a netip.Addr) holding.Thing {
	set := &pods4
	if a.Is6() {
		set = &pods6
	}
	thing := forwardThing(forwardAddress, noLink, a)
	thing.Elements = []nftables.Element{{Set: set, Key: nftables.Addr(a), What: a.String()}}
	return thing
}

func bridgeThing(kind uint32, bridge string) holding.Thing {
	thing := forwardThing(kind, bridge, netip.IPv6Unspecified())
	thing.Group = holding.GroupSet(forwardTable, groupOfBridge(kind, bridge))
	pair := nftables.Join(nftables.Link(bridge), nftables.Link(bridge))
	if kind == forwardIsolated {
		thing.Shared = []nftables.Element{{Set: &isolated, Key: pair, What: bridge}}
		return thing
	}
	thing.Shared = []nftables.Element{{Set: &protected, Key: nftables.Link(bridge), What: bridge}, {Set: &same, Key: pair, What: bridge}}
	return thing
}

func readForward(data []byte) (holding.Thing, bool) {
	if len(data) != 4+unix.IFNAMSIZ+16 {
		return holding.Thing{}, false
	}
	kind, behind := binary.NativeEndian.Uint32(data), data[4:]
	switch kind {
	case forwardAddress:
		return addressThing(netip.AddrFrom16([16]byte(behind[unix.IFNAMSIZ:])).Unmap()), true
	case forwardProtected, forwardIsolated:
		return bridgeThing(kind, unix.ByteSliceToString(behind[:unix.IFNAMSIZ])), true
	}
	return holding.Thing{}, false
}

// What the names of the sets with the holders of a bridge's protection begin with.
const (
	groupProtected = "holders" + forwardVersion + "_protected_"
	groupIsolated  = "holders" + forwardVersion + "_isolated_"
)

func groupOfBridge(kind uint32, bridge string) string {
	if kind == forwardIsolated {
		return groupIsolated + encodeLink(bridge)
	}
	return groupProtected + encodeLink(bridge)
}

func bridgeOfGroup(set string) (holding.Thing, bool) {
	for _, g := range []struct {
		prefix string
		kind   uint32
	}{{groupProtected, forwardProtected}, {groupIsolated, forwardIsolated}} {
		if text, ok := strings.CutPrefix(set, g.prefix); ok {
			bridge, ok := decodeLink(text)
			return bridgeThing(g.kind, bridge), ok
		}
	}
	return holding.Thing{}, false
}

// hexLink begins the name of a link that nft could not read as a part of a
// set's name.
const hexLink = "0x"

func encodeLink(name string) string {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	if strings.ContainsFunc(name, strange) || strings.HasPrefix(name, hexLink) {
		return hexLink + hex.EncodeToString([]byte(name))
	}
	return name
}

func decodeLink(text string) (string, bool) {
	digits, ok := strings.CutPrefix(text, hexLink)
	if !ok {
		return text, true
	}
	name, err := hex.DecodeString(digits)
	return string(name), err == nil
}
