package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// The directory of what is kept beside the kernel's tables, and what is in it.
// It is in /run because it is gone after a reboot, as the tables are.
const (
	stateDir   = "/run/cnibox/iptables"
	recordsDir = stateDir + "/records"
	portsDir   = stateDir + "/ports"
	addrsDir   = stateDir + "/addresses"
	bridgesDir = stateDir + "/bridges"
	lockFile   = stateDir + "/lock"
)

// record says which rules of one use a container has for a network, by
// interface. As text it is
//
//	# The rules of iptables that a container's interfaces have; removed with them.
//	for ports
//	network net
//	container 0123456789ab
//	interface eth0
//	rule ipv4 CNI-DN-e8f6f419596f7f47b3468 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.88.0.2:80
//	bridge br0 isolated ipv4 ipv6
type record struct {
	name               string
	network, container string
	sections           []section
}

// section is what one interface has.
type section struct {
	ifName     string
	rules      []rule
	protection *protection
}

const recordHead = "# The rules of iptables that a container's interfaces have; removed with them.\n"

// recordsKept tells whether there may be a record: not before the first call that
// makes rules. It spares all others a hash and a file's name.
func recordsKept() bool { return !errors.Is(unix.Access(recordsDir, unix.F_OK), fs.ErrNotExist) }

// loadRecord reads the record that an attachment is in. One that is not there
// is empty.
func loadRecord(a attachment) (*record, error) {
	r, err := readRecord(a.recordName())
	if errors.Is(err, fs.ErrNotExist) {
		return &record{name: a.recordName(), network: a.key.Network, container: a.key.ContainerID}, nil
	}
	return r, err
}

func readRecord(name string) (*record, error) {
	text, err := os.ReadFile(filepath.Join(recordsDir, name))
	if err != nil {
		return nil, err
	}
	return parseRecord(name, string(text)), nil
}

// parseRecord reads what String writes. Lines that it does not know are left
// out: they would be a later version's.
func parseRecord(name, text string) *record {
	r := &record{name: name}
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		switch {
		case word == "network":
			r.network = rest
		case word == "container":
			r.container = rest
		case word == "interface":
			r.sections = append(r.sections, section{ifName: rest})
		case len(r.sections) > 0:
			r.sections[len(r.sections)-1].parse(word, rest)
		}
	}
	return r
}

func (s *section) parse(word, rest string) {
	fields := strings.SplitN(rest, " ", 3)
	if len(fields) != 3 {
		return
	}
	switch word {
	case "rule":
		if f, ok := parseFamily(fields[0]); ok && fields[1] != "" {
			r := rule{family: f, chain: fields[1], spec: fields[2]}
			r.addr, _ = addressOf(r)
			s.rules = append(s.rules, r)
		}
	case "bridge":
		s.protection = parseProtection(fields[0], fields[1], fields[2])
	}
}

// parseProtection returns nil for what nobody can have asked for: the names
// become names of directories.
func parseProtection(bridge, policy, list string) *protection {
	if validateLink(bridge) != nil || policy != sameBridge && policy != isolated {
		return nil
	}
	p := &protection{bridge: bridge, policy: policy}
	for _, word := range strings.Fields(list) {
		if f, ok := parseFamily(word); ok {
			p.families = append(p.families, f)
		}
	}
	return p
}

// String returns the record as text.
func (r *record) String() string {
	var b strings.Builder
	use, _, _ := strings.Cut(r.name, "-")
	fmt.Fprintf(&b, "%sfor %s\nnetwork %s\ncontainer %s\n", recordHead, use, r.network, r.container)
	for _, s := range r.sections {
		b.WriteString("interface " + s.ifName + "\n")
		for _, rule := range s.rules {
			fmt.Fprintf(&b, "rule %s %s %s\n", rule.family, rule.chain, rule.spec)
		}
		if p := s.protection; p != nil {
			b.WriteString("bridge " + p.bridge + " " + p.policy + " " + listFamilies(p.families) + "\n")
		}
	}
	return b.String()
}

func listFamilies(families []family) string {
	names := make([]string, 0, len(families))
	for _, f := range families {
		names = append(names, f.String())
	}
	return strings.Join(names, " ")
}

// write puts the record in its file; one without interfaces has none.
func (r *record) write() error {
	path := filepath.Join(recordsDir, r.name)
	if len(r.sections) == 0 {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return state.Write(path, []byte(r.String()), 0o644)
}

// of returns the section of an interface, nil if it has none.
func (r *record) of(ifName string) *section {
	for i := range r.sections {
		if r.sections[i].ifName == ifName {
			return &r.sections[i]
		}
	}
	return nil
}

// others returns the rules of the interfaces but one.
func (r *record) others(ifName string) []rule {
	var rules []rule
	for _, s := range r.sections {
		if s.ifName != ifName {
			rules = append(rules, s.rules...)
		}
	}
	return rules
}

// drop removes the section of an interface.
func (r *record) drop(ifName string) {
	r.sections = slices.DeleteFunc(r.sections, func(s section) bool { return s.ifName == ifName })
}

// key returns the key of an interface's attachment.
func (r *record) key(ifName string) plugin.Key {
	return plugin.Key{Network: r.network, ContainerID: r.container, IfName: ifName}
}

func (s *section) equal(t *section) bool {
	same := func(a, b rule) bool { return a.family == b.family && a.chain == b.chain && a.spec == b.spec }
	if !slices.EqualFunc(s.rules, t.rules, same) || (s.protection == nil) != (t.protection == nil) {
		return false
	}
	return s.protection == nil || s.protection.equal(t.protection)
}

func (p *protection) equal(q *protection) bool {
	return p.bridge == q.bridge && p.policy == q.policy && slices.Equal(p.families, q.families)
}
