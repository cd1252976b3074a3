package netlab

import (
	"errors"
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
// Left out is what changes by itself or says nothing: indexes and handles, counters, carrier, dynamic neighbours, and what
// the kernel derives from an interface being up (link-local IPv6 addresses and their routes).
type Snapshot struct {
	lines []string
}

// Snapshot records the network of the namespace.
func (n *Namespace) Snapshot(t testing.TB) *Snapshot {
	t.Helper()
	return n.snapshot(t, n.networkLines)
}

// Snapshot records the network of the Host, its mounts, and the files below /run, /var/lib/cni, /etc/cni and /opt/cni.
func (h *Host) Snapshot(t testing.TB) *Snapshot {
	t.Helper()
	return h.snapshot(t, h.networkLines, h.fileLines, h.mountLines)
}

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

// networkLines describes the network namespace of the calling thread.
func (n *Namespace) networkLines() ([]string, error) {
	all, err := interfaceLines()
	if err != nil {
		return nil, err
	}
	for _, source := range []func() ([]string, error){nftLines, iptablesLines} {
		lines, err := source()
		if err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	return all, nil
}

// interfaceLines describes the links and what belongs to them. It starts again if links have come or gone meanwhile: a part
// of one would look like something that was left behind, and what has gone can't be read.
func interfaceLines() ([]string, error) {
	for {
		names, all, err := linkLines()
		if err != nil {
			return nil, err
		}
		for _, source := range []func(linkNames) ([]string, error){addressLines, routeLines, ruleLines, qdiscLines, sysctlLines} {
			lines, failed := source(names)
			all, err = append(all, lines...), errors.Join(err, failed)
		}
		now, _, failed := linkLines()
		if failed != nil || maps.Equal(names, now) {
			return all, errors.Join(err, failed)
		}
	}
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
	for _, line := range sortedKeys(count) {
		if count[line] == 0 || hasAnyPrefix(line, ignored) {
			continue
		}
		sign := "+"
		if count[line] < 0 {
			sign = "-"
		}
		for range max(count[line], -count[line]) {
			fmt.Fprintln(&out, sign, line)
		}
	}
	return out.String()
}

// Lines returns the lines that begin with prefix.
func (s *Snapshot) Lines(prefix string) []string {
	var found []string
	for _, line := range s.lines {
		if strings.HasPrefix(line, prefix) {
			found = append(found, line)
		}
	}
	return found
}

// String returns all lines.
func (s *Snapshot) String() string { return strings.Join(s.lines, "\n") }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// facts joins the words of a line, leaving out empty ones.
func facts(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// fact is one "name value" of a line, or empty when the value is the zero value of its type.
func fact[T comparable](name string, value T) string {
	var zero T
	if value == zero {
		return ""
	}
	return fmt.Sprintf("%s %v", name, value)
}
