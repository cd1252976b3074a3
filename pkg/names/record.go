// Package names holds what containers are called in DNS: a record for each attachment, which the plugin dnsname writes and the agent's resolver
// reads. It also knows which DNS servers the node has.
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

// Record is what an attachment is called. Each has a file of its own, so that ADD and DEL cost the same on a full node, and lock nothing. It is in
// /run because it means nothing after a reboot.
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
}

// dirName is that of the directory of records in state.RunDir.
const dirName = "names"

// Dir returns the directory of records, "" if there can't be one.
func Dir() string { return state.RunFile(dirName) }

// FileName returns the name of an attachment's file.
func FileName(k plugin.Key) string {
	id := k.ID(dirName)
	return hex.EncodeToString(id[:])
}

func path(k plugin.Key) string {
	dir := Dir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, FileName(k))
}

// Write puts the record in the place of an earlier one.
func (r *Record) Write() error {
	at := path(r.Key)
	if at == "" {
		return errors.New("neither /run nor $XDG_RUNTIME_DIR can be written")
	}
	o := conf.New()
	r.SetIn(o)
	o.Set("names", r.Names)
	o.Set("domain", r.Domain)
	o.Set("addresses", texts(r.Addresses))
	o.Set("gateways", texts(r.Gateways))
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), state.Remove(at)); err != nil {
		return err
	}
	return state.Create(at, append(o.JSON(), '\n'), 0o644)
}

// Is reports whether two records say the same.
func (r *Record) Is(other *Record) bool {
	return r.Key == other.Key && r.Domain == other.Domain && slices.Equal(r.Names, other.Names) && slices.Equal(r.Addresses, other.Addresses) && slices.Equal(r.Gateways, other.Gateways)
}

// Read returns an attachment's record, nil if there is none.
func Read(k plugin.Key) (*Record, error) {
	r, err := ReadFile(path(k))
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
		return nil, err
	}
	o, noRecord := conf.Parse(text)
	if noRecord != nil {
		return nil, nil
	}
	o = o.Lenient()
	r := &Record{Key: plugin.KeyIn(o)}
	o.Strings("names", &r.Names)
	o.String("domain", &r.Domain)
	r.Addresses, r.Gateways = addresses(o, "addresses"), addresses(o, "gateways")
	if len(r.Names) == 0 {
		return nil, nil
	}
	if file, err := os.Stat(path); err == nil {
		r.Since = file.ModTime()
	}
	return r, nil
}

// List returns all records.
func List() (list []*Record, err error) {
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
		if r != nil {
			list = append(list, r)
		}
		errs = append(errs, err)
	}
	return list, errors.Join(errs...)
}

// Remove removes an attachment's record, and leaves one that is another's.
func Remove(k plugin.Key) error {
	at := path(k)
	if r, _ := ReadFile(at); at == "" || r != nil && r.Key != k {
		return nil
	}
	return state.Remove(at)
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
