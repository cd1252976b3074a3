package iptables

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
)

// The indexes of ports and addresses are symbolic links that lead nowhere: made
// and read in one system call, they cannot be half written. Their text is an
// owner, as attachment.owner returns it. One that is left over does no harm: it
// counts only if the owner's record says the same.

// indexNames returns the paths of the entries that a section has in the indexes.
func indexNames(s *section) []string {
	var names []string
	for _, r := range s.rules {
		if m, ok := portMapOf(r); ok {
			names = append(names, portEntry(r.family, m))
		} else if r.addr.IsValid() {
			names = append(names, addressEntry(r))
		}
	}
	return names
}

func portEntry(f family, m netfilter.PortMap) string {
	host := "any"
	if m.HostIP.IsValid() {
		host = m.HostIP.String()
	}
	return filepath.Join(portsDir, strings.Join([]string{f.String(), netfilter.ProtocolName(m.Protocol), host, strconv.Itoa(int(m.HostPort))}, "-"))
}

func addressEntry(r rule) string { return filepath.Join(addrsDir, r.addr.String()) }

// enter makes index entries the owner's, whose ever they were.
func enter(owner string, names []string) error {
	for _, name := range names {
		err := os.Symlink(owner, name)
		if errors.Is(err, fs.ErrExist) && ownerOf(name) != owner {
			err = errors.Join(os.Remove(name), os.Symlink(owner, name))
		} else if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leave removes the index entries that are the owner's.
func leave(owner string, names []string) {
	for _, name := range names {
		if ownerOf(name) == owner {
			_ = os.Remove(name) // what stays counts for nothing without a record
		}
	}
}

// ownerOf returns what an index entry says, "" if there is none.
func ownerOf(name string) string {
	owner, err := os.Readlink(name)
	if err != nil {
		return ""
	}
	return owner
}

// holder returns the record and interface that an index entry leads to, if the
// record says so too.
func holder(name string) (r *record, ifName string, ok bool) {
	recordName, ifName, ok := strings.Cut(ownerOf(name), ":")
	if !ok || filepath.Base(recordName) != recordName {
		return nil, "", false
	}
	r, err := readRecord(recordName)
	if err != nil {
		return nil, "", false
	}
	s := r.of(ifName)
	if s == nil {
		return nil, "", false
	}
	for _, n := range indexNames(s) {
		if n == name {
			return r, ifName, true
		}
	}
	return nil, "", false
}

// The index of bridges is a directory for each family, bridge and policy, with a
// file for each attachment that wants it. foreign stands for what was there
// before the first of them, and keeps the directory.
const foreign = "made-by-someone-else"

func bridgeDir(f family, bridge string) string {
	return filepath.Join(bridgesDir, f.String(), bridge)
}

func (p *protection) dir(f family) string { return filepath.Join(bridgeDir(f, p.bridge), p.policy) }

func (p *protection) enter(owner string) error {
	for _, f := range p.families {
		if err := os.MkdirAll(p.dir(f), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(p.dir(f), owner), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p *protection) leave(owner string) {
	for _, f := range p.families {
		_ = os.Remove(filepath.Join(p.dir(f), owner))
		_ = os.Remove(p.dir(f)) // only if it is empty
		_ = os.Remove(bridgeDir(f, p.bridge))
	}
}

// obsolete returns the rules that nobody needs any more without the owner.
func (p *protection) obsolete(f family, owner string) []rule {
	if !holdsOnly(p.dir(f), owner) {
		return nil
	}
	rules := p.rules(f)
	if holdsOnly(bridgeDir(f, p.bridge), p.policy) {
		return rules
	}
	return rules[:len(rules)-1]
}

// holdsOnly tells whether a directory holds nothing but one name. It reads two
// names at most.
func holdsOnly(dir, name string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(2)
	return len(names) == 1 && names[0] == name
}
