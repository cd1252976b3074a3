package nft

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

// settle waits until the elements have expired that DEL lets expire.
func settle(t testing.TB, h *netlab.Host) {
	t.Helper()
	netlab.Until(t, "what DEL has let go to expire", func() bool { return !strings.Contains(h.MustRun(t, "nft", "list", "ruleset"), "expires") })
}

var keyOf, prefixes, portMaps, must = netfiltertest.KeyOf, netfiltertest.Prefixes, netfiltertest.PortMaps, netfiltertest.Must

// behind is for ports of containers behind a bridge.
func behind(link string, maps []spec.PortMap) spec.PortNeeds {
	return spec.PortNeeds{Maps: maps, SNAT: true, MarkBit: defaultBit, Inside: link, InsideShared: true}
}

// delPorts takes the ports of an attachment back and returns them as text.
func delPorts(t testing.TB, table *Conn, key plugin.Key) []string {
	t.Helper()
	maps, err := table.Del(ctx, key, Publishing)
	must(t, err)
	var out []string
	for _, m := range maps {
		out = append(out, m.String()+"="+m.Container.String())
	}
	return out
}

func del(t testing.TB, c *Conn, p Purpose, key plugin.Key) {
	t.Helper()
	_, err := c.Del(ctx, key, p)
	must(t, err)
}

// gc collects in the calling thread's namespace.
func gc(p Purpose, network string, valid ...plugin.Key) error {
	return held.GC(ctx, netfiltertest.GC(network, valid...), p, Unused{})
}

// open opens the table of a host until the test ends.
func open(t testing.TB, h *netlab.Host) *Conn {
	t.Helper()
	var table *Conn
	var err error
	h.Do(func() { table, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}

// listing returns what nft lists of our table, "" if it is not there, in an order that
// does not depend on hashes.
func listing(t testing.TB, h *netlab.Host) string {
	t.Helper()
	if h.MustRun(t, "nft", "list", "tables") == "" {
		return ""
	}
	return canonical(h.MustRun(t, "nft", "list", "table", "inet", hostTable.Name))
}

var (
	elementsBlock = regexp.MustCompile(`(?s)elements = \{ (.*?) \}`)
	space         = regexp.MustCompile(`\s+`)
)

func canonical(text string) string {
	return elementsBlock.ReplaceAllStringFunc(text, func(block string) string {
		inside := elementsBlock.FindStringSubmatch(block)[1]
		list := strings.Split(space.ReplaceAllString(inside, " "), ", ")
		slices.Sort(list)
		return "elements = { " + strings.Join(list, ",\n\t\t\t     ") + " }"
	})
}

// sortedLines is for listings whose parts come in the order in which they were made.
func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(strings.TrimSpace(lines[i]), ",")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// restore replaces the host's ruleset by a saved one.
func restore(t testing.TB, h *netlab.Host, saved string) {
	t.Helper()
	h.MustRun(t, "nft", "flush", "ruleset")
	h.Feed(t, saved, "nft", "-f", "-")
}

// addLink gives the host a link, for route_localnet.
func addLink(t testing.TB, h *netlab.Host, name string) {
	t.Helper()
	h.MustRun(t, "ip", "link", "add", name, "type", "bridge")
}
