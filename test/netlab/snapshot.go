package netlab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Snapshot is the state of a namespace that tests compare: one line for each thing that is there. A line begins with what
// kind of thing it is about:
//
//	link, address, route, rule, qdisc, sysctl, nft, iptables     of every Namespace
//	file, mount                                                  of a Host
//
// What follows are names and values: of the packet filter as nft(8) and iptables-save(8) print them, of the rest of the network as
// package netlink has them, which is not all (the preference of IPv6 routes is not). Left out is what changes by itself or says nothing: indexes and handles, counters, carrier, dynamic neighbours, and what the kernel derives from an interface being up
// (link-local IPv6 addresses and their routes).
type Snapshot struct {
	lines []string
}

// Snapshot records the network of the namespace.
func (n *Namespace) Snapshot(t testing.TB) *Snapshot {
	t.Helper()
	return n.snapshot(t, interfaceLines, filterLines)
}

// Snapshot records the network of the Host, its mounts, and the files below /run, /var/lib/cni, /var/log, /etc/cni and
// /opt/cni.
func (h *Host) Snapshot(t testing.TB) *Snapshot {
	t.Helper()
	return h.snapshot(t, interfaceLines, filterLines, fileLines, mountLines)
}

// snapshot takes lines from sources, which describe the namespaces of the calling thread.
func (n *Namespace) snapshot(t testing.TB, sources ...func() ([]string, error)) *Snapshot {
	t.Helper()
	s := &Snapshot{}
	err := n.do(func() error {
		for _, source := range sources {
			lines, err := source()
			if err != nil {
				return err
			}
			s.lines = append(s.lines, lines...)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("take a snapshot of %s: %v", n.name, err)
	}
	slices.Sort(s.lines)
	return s
}

// Diff tells what changed from s to after: a line of s that is gone begins with "- ", a new one with "+ ". It is empty
// when nothing changed. Lines that begin with one of the ignored prefixes do not count, for example
// "nft table inet cnibox" or "file /run/cnibox/".
func (s *Snapshot) Diff(after *Snapshot, ignored ...string) string {
	count := map[string]int{}
	for _, line := range s.lines {
		count[line]--
	}
	for _, line := range after.lines {
		count[line]++
	}
	var out strings.Builder
	for _, line := range slices.Sorted(maps.Keys(count)) {
		if slices.ContainsFunc(ignored, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
			continue
		}
		out.WriteString(strings.Repeat(fmt.Sprintln("-", line), max(-count[line], 0)))
		out.WriteString(strings.Repeat(fmt.Sprintln("+", line), max(count[line], 0)))
	}
	return out.String()
}

// Lines returns the lines that begin with prefix.
func (s *Snapshot) Lines(prefix string) []string {
	return slices.DeleteFunc(slices.Clone(s.lines), func(line string) bool { return !strings.HasPrefix(line, prefix) })
}
