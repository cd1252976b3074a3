// Package names holds what containers are called in DNS, and which names are on their lists: records of attachments, which the plugins dnsname and egress write
// and the agent's resolver reads. It also knows which DNS servers the node has.
package names

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Record is what an attachment is called, or which names are on its lists. Each has a file of its own, so that ADD and DEL cost the same on a full node, and
// lock nothing. It is in /run because it means nothing after a reboot.
//
//	{"network":"demo","containerID":"0123456789ab","ifname":"eth0","names":["web","www"],"domain":"dns.podman",
//	 "addresses":["10.88.0.2"],"gateways":["10.88.0.1"]}
type Record struct {
	plugin.Key
	Names     []string // in lower case, without the domain
	Domain    string   // in lower case; "" is none
	Addresses []netip.Addr
	Gateways  []netip.Addr // at which the container asks for names
	Since     time.Time    // when it was written

	List  string // what its list is called in nf_tables; "" in a record of what it is called
	Lists []Lists
}

// Lists are the entries of one configuration. All of a record's have to let a packet pass.
type Lists struct {
	Allow, Deny []string
	Closed      bool // there is an Allow
}

// Kind is what a record is about. An attachment has one of each at most.
type Kind string

// The kinds.
const (
	Called Kind = "names" // what it is called
	Listed Kind = "lists" // which names are on its lists
)

func (r *Record) kind() Kind {
	if r.List != "" {
		return Listed
	}
	return Called
}

// dirName is that of the directory of records in state.RunDir.
const dirName = "names"

// Dir returns the directory of records, "" if there can't be one.
func Dir() string { return state.RunFile(dirName) }

// FileName returns the name of the record's file.
func (r *Record) FileName() string { return fileName(r.Key, r.kind()) }

func fileName(k plugin.Key, kind Kind) string {
	id := k.ID(string(kind))
	return hex.EncodeToString(id[:])
}

func path(k plugin.Key, kind Kind) string {
	dir := Dir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, fileName(k, kind))
}

// Write puts the record in the place of an earlier one.
func (r *Record) Write() error {
	at := path(r.Key, r.kind())
	if at == "" {
		return fileError(errNoDir)
	}
	o := conf.New()
	r.SetIn(o)
	if r.List != "" {
		r.setLists(o)
	} else {
		o.Set("names", r.Names)
		o.Set("domain", r.Domain)
	}
	o.Set("addresses", texts(r.Addresses))
	o.Set("gateways", texts(r.Gateways))
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), state.Remove(at)); err != nil {
		return fileError(err)
	}
	return fileError(state.Create(at, append(o.JSON(), '\n'), 0o644))
}

// setLists writes the lists, as a configuration has them.
func (r *Record) setLists(o *conf.Object) {
	var parts []*conf.Object
	for _, l := range r.Lists {
		part := conf.New()
		if l.Closed {
			part.Set("allow", &l.Allow)
		}
		part.Set("deny", l.Deny)
		parts = append(parts, part)
	}
	o.Set("list", r.List)
	o.Set("lists", parts)
}

func readLists(o *conf.Object) (l Lists) {
	l.Closed = o.Has("allow")
	o.Strings("allow", &l.Allow)
	o.Strings("deny", &l.Deny)
	return l
}

// Port returns that at which the resolver answers the container.
func (r *Record) Port() uint16 {
	if r.List != "" {
		return ListPort
	}
	return Port
}

// Is reports whether two records say the same.
func (r *Record) Is(other *Record) bool {
	sameLists := slices.EqualFunc(r.Lists, other.Lists, func(a, b Lists) bool {
		return a.Closed == b.Closed && slices.Equal(a.Allow, b.Allow) && slices.Equal(a.Deny, b.Deny)
	})
	return r.Key == other.Key && r.Domain == other.Domain && r.List == other.List && sameLists &&
		slices.Equal(r.Names, other.Names) && slices.Equal(r.Addresses, other.Addresses) && slices.Equal(r.Gateways, other.Gateways)
}

// Read returns an attachment's record of a kind, nil if there is none.
func Read(k plugin.Key, kind Kind) (*Record, error) {
	r, err := ReadFile(path(k, kind))
	if r == nil || r.Key != k {
		return nil, err
	}
	return r, err
}

// ReadFile returns the record in a file, nil if there is no such file or nothing can be read of it, as of one that a crash has cut off.
func ReadFile(path string) (*Record, error) {
	text, err := state.Read(path)
	if state.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fileError(err)
	}
	o, noRecord := conf.Parse(text)
	if noRecord != nil {
		return nil, nil
	}
	o = o.Lenient()
	r := &Record{Key: plugin.KeyIn(o)}
	o.Strings("names", &r.Names)
	o.String("domain", &r.Domain)
	o.String("list", &r.List)
	o.Objects("lists", func(part *conf.Object) { r.Lists = append(r.Lists, readLists(part)) })
	r.Addresses, r.Gateways = addresses(o, "addresses"), addresses(o, "gateways")
	if len(r.Names) == 0 && r.List == "" {
		return nil, nil
	}
	if file, err := os.Stat(path); err == nil {
		r.Since = file.ModTime()
	}
	return r, nil
}

// List returns all records of a kind.
func List(kind Kind) (list []*Record, err error) {
	dir := Dir()
	files, err := os.ReadDir(dir)
	if state.IsMissing(err) {
		return nil, nil
	}
	errs := []error{err}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		r, err := ReadFile(filepath.Join(dir, f.Name()))
		if r != nil && r.kind() == kind {
			list = append(list, r)
		}
		errs = append(errs, err)
	}
	return list, errors.Join(errs...)
}

// Remove removes an attachment's record of a kind, and leaves one that is another's.
func Remove(k plugin.Key, kind Kind) error {
	at := path(k, kind)
	if r, _ := ReadFile(at); at == "" || r != nil && r.Key != k {
		return nil
	}
	return fileError(state.Remove(at))
}

// Full returns a name with the record's domain, "" if there is none.
func (r *Record) Full(name string) string {
	if r.Domain == "" {
		return ""
	}
	return name + "." + r.Domain
}

// String is the record in a line, for people.
func (r *Record) String() string {
	if r.List != "" {
		return "names on the lists of " + strings.Join(texts(r.Addresses), ", ")
	}
	text := "name " + strings.Join(r.Names, ", ")
	if r.Domain != "" {
		text += " in " + r.Domain
	}
	return text + " for " + strings.Join(texts(r.Addresses), ", ")
}

func texts(list []netip.Addr) (all []string) {
	for _, a := range list {
		all = append(all, a.String())
	}
	return all
}

func addresses(o *conf.Object, key string) (list []netip.Addr) {
	var all []string
	o.Strings(key, &all)
	for _, text := range all {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}
