// Package bridgefilter keeps what an attachment needs where packets cross a
// bridge, in an nftables table of family bridge: a port that may only send from
// its own MAC address, and ports that may not reach one another.
//
// The table is bridge cnibox, of a host with two containers that are checked and
// isolated:
//
//	table bridge cnibox {
//		set checked_v1  { ifname: veth1, veth2 }
//		set allowed_v1  { ifname . ether_addr: veth1 . 02:…:01, veth2 . 02:…:02 }
//		set isolated_v1 { ifname: veth1, veth2 }
//		set trials_v1   { mark . mark: … } # see expiry
//		chain prerouting_v1 {
//			type filter hook prerouting priority dstnat; policy accept;
//			iifname . ether saddr @allowed_v1 accept
//			iifname @checked_v1 drop
//		}
//		chain forward_v1 {
//			type filter hook forward priority filter; policy accept;
//			iifname @isolated_v1 oifname @isolated_v1 drop
//		}
//	}
//
// No chain is bound to a link: on recent kernels it would outlive that, and grab
// the next one of its name.
package bridgefilter

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/holding"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// ErrUnavailable says that the kernel has no nf_tables for bridges.
var ErrUnavailable = netfilter.ErrUnavailable

// TableName is the name of the table, of family bridge.
const TableName = "cnibox"

const version = "_v1"

// The uses of an attachment.
const (
	useSpoofCheck = "spoof check"
	useIsolated   = "isolated port"
)

// Priorities of family bridge, by which nft calls them dstnat and filter
// (linux/netfilter_bridge.h, NF_BR_PRI_…).
const (
	priorityNAT    = -300
	priorityFilter = -200
)

var (
	table    = nftables.Table{Family: unix.NFPROTO_BRIDGE, Name: TableName}
	checked  = nftables.Set{Table: table, Name: "checked" + version, Key: []nftables.Type{nftables.TypeLink}, Expiring: true}
	allowed  = nftables.Set{Table: table, Name: "allowed" + version, Key: []nftables.Type{nftables.TypeLink, nftables.TypeEther}, Expiring: true}
	isolated = nftables.Set{Table: table, Name: "isolated" + version, Key: []nftables.Type{nftables.TypeLink}, Expiring: true}
)

func ruleset() holding.Ruleset {
	return holding.Ruleset{
		Table:  table,
		Owners: holding.OwnersSet(table, "owners"+version, nftables.TypeMark, nftables.TypeLink, nftables.TypeEther),
		Sets:   []*nftables.Set{&checked, &allowed, &isolated},
		Chains: []nftables.Chain{
			{Name: "prerouting" + version, Kind: "filter", Hook: nftables.HookPrerouting, Priority: priorityNAT, Rules: []nftables.Rule{
				nftables.MakeRule(nftables.In(&allowed, nftables.InLink(), nftables.SrcEther()), nftables.Accept()),
				nftables.MakeRule(nftables.In(&checked, nftables.InLink()), nftables.Drop()),
			}},
			{Name: "forward" + version, Kind: "filter", Hook: nftables.HookForward, Priority: priorityFilter, Rules: []nftables.Rule{
				nftables.MakeRule(nftables.In(&isolated, nftables.InLink()), nftables.In(&isolated, nftables.OutLink()), nftables.Drop()),
			}},
		},
		Trials: holding.TrialsSet(table, "trials"+version),
		Read:   read,
		Need:   "the kernel needs nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE), or must be able to load its modules (nf_tables, nft_meta_bridge)",
	}
}

// Tables are the tables in which there can be something to remove: ours, and the
// reference plugin's.
func Tables() []nftables.Table { return []nftables.Table{table, referenceTable} }

// Table is the table in one network namespace. One goroutine at a time.
type Table struct {
	held *holding.Table
}

// On returns the table of a connection's namespace. Nothing is made of it before
// something is put in.
func On(conn *nftables.Conn) *Table {
	return &Table{&holding.Table{Ruleset: ruleset(), Conn: conn}}
}

// Open opens a connection of its own, in the calling thread's namespace.
func Open() (*Table, error) {
	conn, err := nftables.Open()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		r := ruleset()
		return nil, r.Unavailable(err)
	}
	if err != nil {
		return nil, err
	}
	return On(conn), nil
}

// Close closes the connection. After something was removed the kernel makes the
// caller wait until it has freed that, some milliseconds.
func (t *Table) Close() { t.held.Conn.Close() }

// Available tries whether the kernel takes the table, without leaving anything in
// it.
func (t *Table) Available() error { return t.held.Available() }

// AddSpoofCheck has packets dropped that the host's end of the attachment's veth
// gets from any other MAC address.
func (t *Table) AddSpoofCheck(ctx context.Context, key plugin.Key, hostEnd string, mac [6]byte) error {
	return t.held.Hold(ctx, holding.HolderOf(key, useSpoofCheck), []holding.Thing{spoofCheck(hostEnd, mac)})
}

// DelSpoofCheck removes that, and what the reference bridge plugin has made for
// the attachment.
func (t *Table) DelSpoofCheck(ctx context.Context, key plugin.Key) error {
	return errors.Join(
		t.held.Release(ctx, holding.HolderOf(key, useSpoofCheck)),
		removeReference(ctx, t.held.Conn, key))
}

// CheckSpoofCheck compares what is there with what AddSpoofCheck makes. What the
// reference plugin has made will do.
func (t *Table) CheckSpoofCheck(ctx context.Context, key plugin.Key, hostEnd string, mac [6]byte) error {
	err := t.held.Check(ctx, holding.HolderOf(key, useSpoofCheck), []holding.Thing{spoofCheck(hostEnd, mac)})
	if err == nil {
		return nil
	}
	if there, asked := hasReference(t.held.Conn, key); there && asked == nil {
		return nil
	}
	return err
}

// GCSpoofCheck removes what attachments of the network have that are not valid.
// The reference plugin's chains tell no network: those of containers go that
// libcni knows of on none.
func (t *Table) GCSpoofCheck(ctx context.Context, network string, valid []plugin.Key) error {
	return errors.Join(
		t.held.Collect(ctx, network, useSpoofCheck, valid),
		collectReference(ctx, t.held.Conn, valid))
}

// AddIsolated has packets dropped that come from other isolated ports of the
// bridge, or go there.
func (t *Table) AddIsolated(ctx context.Context, key plugin.Key, hostEnd string) error {
	return t.held.Hold(ctx, holding.HolderOf(key, useIsolated), []holding.Thing{isolatedPort(hostEnd)})
}

// DelIsolated removes that.
func (t *Table) DelIsolated(ctx context.Context, key plugin.Key) error {
	return t.held.Release(ctx, holding.HolderOf(key, useIsolated))
}

// CheckIsolated compares what is there with what AddIsolated makes.
func (t *Table) CheckIsolated(ctx context.Context, key plugin.Key, hostEnd string) error {
	return t.held.Check(ctx, holding.HolderOf(key, useIsolated), []holding.Thing{isolatedPort(hostEnd)})
}

// GCIsolated removes what attachments of the network have that are not valid.
func (t *Table) GCIsolated(ctx context.Context, network string, valid []plugin.Key) error {
	return t.held.Collect(ctx, network, useIsolated, valid)
}

// The kinds of things that are held here.
const (
	kindSpoofCheck = 1
	kindIsolated   = 2
)

func spoofCheck(hostEnd string, mac [6]byte) holding.Thing {
	link := nftables.Link(hostEnd)
	return holding.Thing{
		Use:  useSpoofCheck,
		Data: nftables.Join(nftables.Native(kindSpoofCheck), link, nftables.Ether(mac)),
		Elements: []nftables.Element{
			{Set: &allowed, Key: nftables.Join(link, nftables.Ether(mac)), What: hostEnd},
			{Set: &checked, Key: link, What: hostEnd},
		},
	}
}

func isolatedPort(hostEnd string) holding.Thing {
	link := nftables.Link(hostEnd)
	return holding.Thing{
		Use:      useIsolated,
		Data:     nftables.Join(nftables.Native(kindIsolated), link, nftables.Ether([6]byte{})),
		Elements: []nftables.Element{{Set: &isolated, Key: link, What: hostEnd}},
	}
}

func read(data []byte) (holding.Thing, bool) {
	if len(data) != 4+unix.IFNAMSIZ+8 {
		return holding.Thing{}, false
	}
	link := unix.ByteSliceToString(data[4 : 4+unix.IFNAMSIZ])
	switch binary.NativeEndian.Uint32(data) {
	case kindSpoofCheck:
		return spoofCheck(link, [6]byte(data[4+unix.IFNAMSIZ:])), true
	case kindIsolated:
		return isolatedPort(link), true
	}
	return holding.Thing{}, false
}
