package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// watchNFTables hears of the changes of nf_tables in our namespace.
func (w *Watch) watchNFTables() error {
	l, err := listen(unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1), nil, false)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // a kernel without netfilter over netlink has nothing of it
	}
	if err != nil {
		return fmt.Errorf("watch nf_tables: %w", err)
	}
	w.closeAtEnd(l)
	go func() {
		t := newTransaction(w)
		for {
			begun := time.Now()
			b, _, err := l.read()
			waited := time.Since(begun) > moment
			switch {
			case errors.Is(err, errLost):
				t = newTransaction(w)
				w.hit("events of nf_tables were lost", "")
			case err != nil:
				w.end(fmt.Errorf("watch nf_tables: %w", err))
				return
			default:
				for m := range messages(b) {
					t.read(m)
				}
			}
			if waited {
				time.Sleep(gather) // what follows is read at once
			}
		}
	}()
	return nil
}

// A change of nf_tables is several messages, and changes rarely come alone. To wake up for each of them would be most of what they cost.
const moment, gather = 100 * time.Microsecond, 20 * time.Millisecond

// transaction is what is known of a change of nf_tables: the kernel tells one after the other, and in the end who made it.
//
// In our tables whatever is deleted is a hit, unless one of our programs did it.
type transaction struct {
	watch  *Watch
	hits   map[string]string // what is hit, by what it is about
	tables map[string]bool   // of iptables, in which a rule of ours was deleted
}

func newTransaction(w *Watch) *transaction {
	return &transaction{w, map[string]string{}, map[string]bool{}}
}

const sizeofNfgenmsg = 4

// Of linux/netfilter/nf_tables.h; the name of the table is the first attribute of all kinds of messages.
const nftaTable = 1

// read takes a message in. The kernel made it, but the names in it are anybody's.
func (t *transaction) read(m message) {
	if m.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.data) < sizeofNfgenmsg {
		return
	}
	kind := m.kind & 0xff
	switch kind {
	case unix.NFT_MSG_NEWGEN:
		t.end(m.data)
		return
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM, unix.NFT_MSG_NEWRULE:
	default:
		return
	}
	table := netfilter.NameOf(nftables.Table{Family: nftables.TableFamily(m.data[0]), Name: text(attribute(m.data, sizeofNfgenmsg, nftaTable))})
	switch {
	case ownTables[table]:
		t.readOwn(kind, table, m.data)
	case kind == unix.NFT_MSG_NEWRULE && len(t.tables) == 0 && !t.watch.hasRules(): // there is nothing that it could put back
	case iptablesTables[table]:
		t.readIPTables(kind, table, m.data)
	case kind == unix.NFT_MSG_DELTABLE && referenceTables[table]:
		t.add(table, "table "+table+" was deleted")
	}
}

// readOwn takes in what happened to one of our tables.
func (t *transaction) readOwn(kind uint16, table string, data []byte) {
	switch kind {
	case unix.NFT_MSG_DELTABLE:
		t.hits[table] = "table " + table + " was deleted" // with all that was in it
	case unix.NFT_MSG_DELCHAIN:
		t.add(table, "chain "+harmless(text(attribute(data, sizeofNfgenmsg, unix.NFTA_CHAIN_NAME)))+" of table "+table+" was deleted")
	case unix.NFT_MSG_DELRULE:
		t.add(table, "rules of chain "+harmless(text(attribute(data, sizeofNfgenmsg, unix.NFTA_RULE_CHAIN)))+" of table "+table+" were deleted")
	case unix.NFT_MSG_NEWRULE:
		if listTables[table] { // where each may open what lists close
			t.add(table, "rules were added to chain "+harmless(text(attribute(data, sizeofNfgenmsg, unix.NFTA_RULE_CHAIN)))+" of table "+table)
		}
	case unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM:
		name := harmless(text(attribute(data, sizeofNfgenmsg, unix.NFTA_SET_NAME))) // has the same number in elements
		t.add(table, "elements of set "+name+" of table "+table+" were deleted")
	}
}

// add keeps the first of what is about the same.
func (t *transaction) add(about, what string) {
	if _, known := t.hits[about]; !known && len(t.hits) < mostHits*4 {
		t.hits[about] = what
	}
}

// forget drops a hit that something put back, or that a DEL explains: of this transaction, or of one before.
func (t *transaction) forget(about string) {
	delete(t.hits, about)
	t.watch.forget(about)
}

// end ends the transaction, as NFT_MSG_NEWGEN tells who made it.
func (t *transaction) end(data []byte) {
	if len(t.hits) > 0 {
		name := text(attribute(data, sizeofNfgenmsg, unix.NFTA_GEN_PROC_NAME))
		pid := uint32(0)
		if b := attribute(data, sizeofNfgenmsg, unix.NFTA_GEN_PROC_PID); len(b) == 4 {
			pid = binary.BigEndian.Uint32(b)
		}
		if !t.watch.programs.isOurs(name) {
			t.watch.rulesHit(t.hits, describe(name, pid))
		}
		t.hits = map[string]string{}
	}
	if len(t.tables) > 0 {
		t.tables = map[string]bool{}
	}
}

// The tables in which there may be something of attachments, by family and name.
// Changes inside tables of the reference plugins are those plugins' business.
var (
	ownTables       = setOf(netfilter.OwnTables())
	listTables      = setOf([]nftables.Table{nft.Judging.Table, nft.GuardingPorts.Table})
	iptablesTables  = setOf(netfilter.IPTablesTables())
	referenceTables = setOf(netfilter.ReferenceTables())
)

func setOf(tables []nftables.Table) map[string]bool {
	set := map[string]bool{}
	for _, t := range tables {
		set[netfilter.NameOf(t)] = true
	}
	return set
}

// hasRules reports whether the burst has hits of the packet filter.
func (w *Watch) hasRules() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.burst.filter) > 0
}

func (w *Watch) forget(about string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.burst.filter, about)
}

func (w *Watch) rulesHit(hits map[string]string, by string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, about := range slices.Sorted(maps.Keys(hits)) {
		w.burst.addFilter(about, Hit{Kind: Filter, What: hits[about], By: by})
	}
	w.announce()
}
