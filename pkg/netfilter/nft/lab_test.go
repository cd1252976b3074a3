package nft

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

func keyOf(id string) plugin.Key {
	return plugin.Key{Network: "net", ContainerID: id, IfName: "eth0"}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// portMap reads "tcp/8080=10.88.0.2:80" and "udp/192.0.2.1:53=10.88.0.2:53".
func portMap(t testing.TB, s string) netfilter.PortMap {
	t.Helper()
	host, container, _ := strings.Cut(s, "=")
	name, port, _ := strings.Cut(host, "/")
	m := netfilter.PortMap{Container: netip.MustParseAddrPort(container)}
	var ok bool
	if m.Protocol, ok = netfilter.Protocol(name); !ok {
		t.Fatalf("protocol of %q", s)
	}
	if a, err := netip.ParseAddrPort(port); err == nil {
		m.HostIP, m.HostPort = a.Addr(), a.Port()
		return m
	}
	if _, err := fmt.Sscan(port, &m.HostPort); err != nil {
		t.Fatal(err)
	}
	return m
}

func portMaps(t testing.TB, texts ...string) []netfilter.PortMap {
	t.Helper()
	var out []netfilter.PortMap
	for _, s := range texts {
		out = append(out, portMap(t, s))
	}
	return out
}

// behind is for ports of containers behind a bridge.
func behind(link string, maps []netfilter.PortMap) netfilter.PortMaps {
	return netfilter.PortMaps{Maps: maps, SNAT: true, MarkBit: defaultBit, Inside: link, InsideShared: true}
}

// delPorts takes the ports of an attachment back and returns them as text.
func delPorts(t testing.TB, table *Table, key plugin.Key) []string {
	t.Helper()
	maps, err := table.DelPortMaps(ctx, key, nil)
	must(t, err)
	var out []string
	for _, m := range maps {
		out = append(out, m.String()+"="+m.Container.String())
	}
	return out
}

// open opens the table of a host until the test ends.
func open(t testing.TB, h *netlab.Host) *Table {
	t.Helper()
	var table *Table
	var err error
	h.Do(func() { table, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing returns what nft lists of our table, "" if it is not there, in an
// order that does not depend on hashes, without what does not belong to any
// attachment and depends on the kernel.
func listing(t testing.TB, h *netlab.Host) string {
	t.Helper()
	if h.MustRun(t, "nft", "list", "tables") == "" {
		return ""
	}
	return canonical(h.MustRun(t, "nft", "list", "table", "inet", TableName))
}

var (
	elementsBlock = regexp.MustCompile(`(?s)elements = \{ (.*?) \}`)
	trialElements = regexp.MustCompile(`(?s)(\tset trials_v\d \{\n\t\ttype mark \. mark\n\t\tflags timeout\n)\t\telements = \{.*?\}\n`)
	space         = regexp.MustCompile(`\s+`)
)

func canonical(text string) string {
	text = trialElements.ReplaceAllString(text, "$1")
	text = elementsBlock.ReplaceAllStringFunc(text, func(block string) string {
		inside := elementsBlock.FindStringSubmatch(block)[1]
		list := strings.Split(space.ReplaceAllString(inside, " "), ", ")
		slices.Sort(list)
		return "elements = { " + strings.Join(list, ",\n\t\t\t     ") + " }"
	})
	return text
}

// restore replaces the host's ruleset by a saved one.
func restore(t testing.TB, h *netlab.Host, saved string) {
	t.Helper()
	h.MustRun(t, "nft", "flush", "ruleset")
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(saved)
	if _, err := h.Output(cmd); err != nil {
		t.Fatal(err)
	}
}

// sortedLines sorts what is listed: sets and rules stand in the order in which
// they were made.
func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], ",")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var (
	ownerData   = regexp.MustCompile(`0x00(..)0([0d])(..) \. 0x00000000 \. (\S+ \. \S+) \. (\d+)`)
	trialsBlock = regexp.MustCompile(`(?s)\tset trials_v2 \{.*?\n\t\}\n\n`)
	conditional = regexp.MustCompile(`(?s)\tmap \w*ifports\d_v2 \{.*?\n\t\}\n\n`)
)

// asVersion1 makes a listing what the first version would have made.
func asVersion1(text string) string {
	text = conditional.ReplaceAllString(text, "")
	text = trialsBlock.ReplaceAllString(text, "")
	text = asBeforeGone(text)
	text = strings.NewReplacer(
		"mark : mark . mark . ifname . ipv6_addr . inet_service", "mark : mark . ifname . ipv6_addr . inet_proto . inet_service",
		"\t\tflags timeout\n", "",
		"\t\tjump hostoptions_v2\n", "", "\t\tjump options_v2\n", "",
		"\tchain hostoptions_v2 {\n\t}\n\n", "", "\tchain options_v2 {\n\t}\n\n", "",
	).Replace(text)
	text = ownerData.ReplaceAllStringFunc(text, func(s string) string {
		m := ownerData.FindStringSubmatch(s)
		proto := map[string]string{"00": "255", "06": "tcp", "11": "udp", "84": "sctp"}[m[1]]
		return "0x000000" + m[3] + " . " + m[4] + " . " + proto + " . " + m[5]
	})
	return strings.ReplaceAll(text, version, version1)
}

var (
	goneSet    = regexp.MustCompile(`(?s)\tset \w*gone\d?_v2\S* \{.*?\n\t\}\n\n`)
	goneLookup = regexp.MustCompile(`(\t\t|meta nfproto ipv. )[^!\n]* != @\w*gone\d?_v2\S* `)
)

// asBeforeGone makes a listing what there was before keys were withdrawn.
func asBeforeGone(text string) string {
	return goneLookup.ReplaceAllString(goneSet.ReplaceAllString(text, ""), "$1")
}

// addLink gives the host a link, for route_localnet.
func addLink(t testing.TB, h *netlab.Host, name string) {
	t.Helper()
	h.MustRun(t, "ip", "link", "add", name, "type", "bridge")
}

const tcp = unix.IPPROTO_TCP
