package resolver

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
)

// table is all records, found by what a question has.
type table struct {
	files map[string]*names.Record
	index map[entry][]*names.Record
	lists map[*names.Record]reach.Lists // of the records that have lists: what is open by all of them
	open  map[*names.Record]opened
}

// entry is what records are found by. A container's question is looked up in its networks alone.
type entry struct {
	kind    kind
	network string
	text    string
}

type kind int

// The kinds of entries.
const (
	ofAddress   kind = iota // of any network: who asks
	ofContainer             // of any network
	ofName                  // and of a name with the domain
	ofDomain                // for which nobody else is asked
	ofReverse               // the name of an address, such as 2.0.88.10.in-addr.arpa
)

func newTable() *table {
	return &table{files: map[string]*names.Record{}, index: map[entry][]*names.Record{}, lists: map[*names.Record]reach.Lists{}, open: map[*names.Record]opened{}}
}

// entriesOf are the entries at which a record is found.
func entriesOf(r *names.Record) (list []entry) {
	list = append(list, entry{ofContainer, "", r.ContainerID})
	for _, a := range r.Addresses {
		list = append(list, entry{ofAddress, "", a.String()})
		if reverse, err := dns.ReverseAddr(a.String()); err == nil && len(r.Names) > 0 {
			list = append(list, entry{ofReverse, r.Network, bare(reverse)})
		}
	}
	for _, name := range r.Names {
		list = append(list, entry{ofName, r.Network, name})
		if full := r.Full(name); full != "" {
			list = append(list, entry{ofName, r.Network, full})
		}
	}
	if r.Domain != "" {
		list = append(list, entry{ofDomain, r.Network, r.Domain})
	}
	return list
}

// bare returns a name of a question as records have it.
func bare(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// put puts a file's record in the place of an earlier one; nil is none.
func (t *table) put(file string, r *names.Record) {
	if old := t.files[file]; old != nil {
		delete(t.files, file)
		delete(t.lists, old)
		delete(t.open, old)
		for _, e := range entriesOf(old) {
			t.index[e] = slices.DeleteFunc(t.index[e], func(other *names.Record) bool { return other == old })
			if len(t.index[e]) == 0 {
				delete(t.index, e)
			}
		}
	}
	if r == nil {
		return
	}
	t.files[file] = r
	if r.List != "" {
		t.lists[r], t.open[r] = ListsOf(r), opened{}
	}
	for _, e := range entriesOf(r) {
		t.index[e] = append(t.index[e], r)
	}
}

// load reads a file again. One that can't be read has no names, which CHECK says.
func (t *table) load(dir, file string) {
	r, _ := names.ReadFile(filepath.Join(dir, file))
	if r != nil && r.FileName() != file { // it is none of ours
		r = nil
	}
	t.put(file, r)
}

// ListsOf returns what all of a record's lists let pass. An entry that can't be read opens nothing, and closes everything if it is one of Deny.
func ListsOf(r *names.Record) (all reach.Lists) {
	for _, texts := range r.Lists {
		part := reach.Lists{Closed: texts.Closed}
		for _, text := range texts.Allow {
			if e, err := reach.Parse(text); err == nil {
				part.Allow = append(part.Allow, e)
			}
		}
		for _, text := range texts.Deny {
			e, err := reach.Parse(text)
			if err != nil {
				return reach.Lists{Closed: true}
			}
			part.Deny = append(part.Deny, e)
		}
		all = all.And(part)
	}
	return all
}

// places returns where containers ask: those with lists have no other way to a server.
func (t *table) places() map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for _, r := range t.files {
		for _, a := range r.Gateways {
			all[netip.AddrPortFrom(a, r.Port())] = true
		}
	}
	return all
}

// asker is the container that asks.
type asker struct {
	networks []string
	record   *names.Record // that has its lists; nil if it has none
	lists    reach.Lists
	opened   opened // for it; the resolver's lock guards it
	id       string // of the container
}

// asker returns the container that asks at a gateway from an address, nil if none does. If two have the same there, as one that ended without a DEL, it is
// the newer one.
func (t *table) asker(from, gateway netip.Addr) *asker {
	var newest *names.Record
	all := t.index[entry{ofAddress, "", from.String()}]
	for _, r := range all {
		if slices.Contains(r.Gateways, gateway) && (newest == nil || r.Since.After(newest.Since)) {
			newest = r
		}
	}
	if newest == nil {
		return nil
	}
	a := &asker{id: newest.ContainerID}
	for _, r := range all {
		if r.List != "" && r.Key == newest.Key {
			a.record, a.lists, a.opened = r, t.lists[r], t.open[r]
		}
	}
	for _, r := range t.index[entry{ofContainer, "", newest.ContainerID}] {
		if !slices.Contains(a.networks, r.Network) {
			a.networks = append(a.networks, r.Network)
		}
	}
	return a
}

// find returns the records at an entry of some networks.
func (t *table) find(kind kind, networks []string, text string) (list []*names.Record) {
	for _, n := range networks {
		list = append(list, t.index[entry{kind, n, text}]...)
	}
	return list
}

// isBelow reports whether a name is in a domain of some networks.
func (t *table) isBelow(networks []string, name string) bool {
	for ; name != ""; _, name, _ = strings.Cut(name, ".") {
		if t.find(ofDomain, networks, name) != nil {
			return true
		}
	}
	return false
}
