package show

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// column is a column of a table by which its rows can be sorted.
type column[R any] struct {
	name    string // the head's, in lower case
	compare func(a, b R) int
}

// by compares rows by a value. Rows that have none come last.
func by[R any, V comparable](value func(R) V, compare func(a, b V) int) func(a, b R) int {
	return func(a, b R) int {
		var none V
		x, y := value(a), value(b)
		switch {
		case x == y:
			return 0
		case x == none:
			return 1
		case y == none:
			return -1
		}
		return compare(x, y)
	}
}

var attachmentColumns = []column[*node.Attachment]{
	{"network", by(func(a *node.Attachment) string { return a.Network }, cmp.Compare)},
	{"container", by(func(a *node.Attachment) string { return cmp.Or(a.ContainerID, a.Owner) }, cmp.Compare)},
	{"pod", by(func(a *node.Attachment) string { return a.Pod }, cmp.Compare)},
	{"interface", by(func(a *node.Attachment) string { return a.IfName }, cmp.Compare)},
	{"addresses", by((*node.Attachment).Address, netip.Addr.Compare)},
	{"host-end", by(hostEndOf, cmp.Compare)},
	{"state", by(func(a *node.Attachment) node.State { return a.State }, cmp.Compare)},
	{"age", by(sinceOf, func(a, b time.Time) int { return b.Compare(a) })},
	{"since", by(sinceOf, time.Time.Compare)},
	{"ports", by(portOf, cmp.Compare)},
	{"namespace", by(func(a *node.Attachment) string { return a.Netns }, cmp.Compare)},
	{"why", by(func(a *node.Attachment) string { return a.Why }, cmp.Compare)},
}

// networkColumns are those of networks. The line of a network has the figures of its first pool.
var networkColumns = []column[*node.Network]{
	{"network", by(func(w *node.Network) string { return w.Name }, cmp.Compare)},
	{"plugins", by(func(w *node.Network) string { return strings.Join(w.Plugins, ", ") }, cmp.Compare)},
	{"pool", by(subnetOf, netip.Prefix.Compare)},
	{"size", func(a, b *node.Network) int { return cmp.Compare(poolOf(a).Size, poolOf(b).Size) }},
	{"used", func(a, b *node.Network) int { return cmp.Compare(poolOf(a).Used, poolOf(b).Used) }},
	{"gone", func(a, b *node.Network) int { return cmp.Compare(goneOf(a), goneOf(b)) }},
	{"attachments", func(a, b *node.Network) int { return cmp.Compare(a.Attachments, b.Attachments) }},
	{"file", by(func(w *node.Network) string { return w.File }, cmp.Compare)},
}

var portColumns = []column[publishedPort]{
	{"host-ip", by(func(p publishedPort) netip.Addr { return addressIn(p.HostIP) }, netip.Addr.Compare)},
	{"port", by(func(p publishedPort) int { return p.HostPort }, cmp.Compare)},
	{"proto", by(func(p publishedPort) string { return p.Protocol }, cmp.Compare)},
	{"leads-to", by(func(p publishedPort) netip.AddrPort {
		return netip.AddrPortFrom(addressIn(p.Address), uint16(p.ContainerPort))
	}, netip.AddrPort.Compare)},
	{"container", by(func(p publishedPort) string { return cmp.Or(p.Pod, p.ContainerID, p.of.Owner) }, cmp.Compare)},
	{"network", by(func(p publishedPort) string { return p.Network }, cmp.Compare)},
	{"state", by(func(p publishedPort) node.State { return p.State }, cmp.Compare)},
}

func sinceOf(a *node.Attachment) (t time.Time) {
	if a.Since != nil {
		t = *a.Since
	}
	return t
}

// portOf returns the first port in the line of an attachment.
func portOf(a *node.Attachment) int {
	if len(a.Ports) == 0 {
		return 0
	}
	return a.Ports[0].HostPort
}

func hostEndOf(a *node.Attachment) string {
	if a.HostEnd == nil {
		return ""
	}
	return a.HostEnd.Name
}

func poolOf(w *node.Network) node.Pool {
	if len(w.Pools) == 0 {
		return node.Pool{}
	}
	return *w.Pools[0]
}

func subnetOf(w *node.Network) netip.Prefix {
	p, _ := netip.ParsePrefix(poolOf(w).Subnet) // invalid if there is none
	return p
}

// goneOf returns what the line of a network has in its column GONE.
func goneOf(w *node.Network) uint64 {
	if len(w.Pools) == 0 {
		return uint64(w.Gone)
	}
	return w.Pools[0].Gone
}

func addressIn(text string) netip.Addr {
	a, _ := netip.ParseAddr(text) // invalid if there is none
	return a
}

// addSort gives a command the flag that sorts its table, and its list with --json, by a column.
func addSort[R any](cmd *cobra.Command, f *showFlags, columns []column[R]) {
	for _, c := range columns {
		f.columns = append(f.columns, c.name)
	}
	cmd.Flags().StringVar(&f.sort, "sort", "", "sort by this column of the table, with --json too: "+strings.Join(f.columns, ", "))
	ui.Complete(cmd, "sort", cobra.FixedCompletions(f.columns, cobra.ShellCompDirectiveNoFileComp))
}

// sortRows sorts rows by the column that is asked for, if one is. Rows that are alike in it stay in their order.
func sortRows[R any](rows []R, columns []column[R], name string) {
	for _, c := range columns {
		if c.name == name {
			slices.SortStableFunc(rows, c.compare)
		}
	}
}
