package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

func newShowNetworks() *cobra.Command {
	f := &showFlags{Options: node.Options{Shared: true}}
	cmd := &cobra.Command{
		Use:   "networks",
		Short: "Show the networks of this node, with how full their pools are",
		Long: `Show the networks of this node: what they are made of, and how many addresses of
their pools are used, also by attachments that are gone. A network without a
file is one that only attachments name.

Of a network whose addresses are in etcd the figures are those of all hosts, with
how many each has, and when its addresses are free if nothing is heard of it.
`,
		Example: "  cnictl show networks",
		Args:    ui.Arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, f.networks) },
	}
	f.add(cmd)
	addSort(cmd, f, networkColumns)
	return cmd
}

// shownNetworks is what `show networks` prints.
type shownNetworks struct {
	Networks []*node.Network `json:"networks"`
	Unread   []node.Unread   `json:"unread"`
}

func (f *showFlags) networks(n *node.Node) (shown, error) {
	s := &shownNetworks{[]*node.Network{}, f.unread(n)}
	for _, w := range n.Networks {
		if f.network == "" || w.Name == f.network {
			s.Networks = append(s.Networks, w)
		}
	}
	sortRows(s.Networks, networkColumns, f.sort)
	return s, nil
}

func (s *shownNetworks) print(w io.Writer, _ *showFlags) {
	printNetworks(w, s.Networks)
	for _, n := range s.Networks {
		if n.Shared != nil {
			printShared(w, n)
		}
	}
}

// printShared prints which hosts share a network's pools.
func printShared(w io.Writer, n *node.Network) {
	if n.Shared.Error != "" {
		fmt.Fprintf(w, "\n%s: %s, so that USED is of this host alone: %s\n", ui.Harmless(n.Name), ui.Bad.Sprint("etcd can't be asked"), ui.Harmless(n.Shared.Error))
		return
	}
	fmt.Fprintf(w, "\n%s is shared by %s:\n", ui.Harmless(n.Name), ui.Counted(len(n.Shared.Hosts), "host"))
	header := []string{"HOST", "FREE AFTER"}
	for _, p := range n.Pools {
		header = append(header, p.Name())
	}
	g := ui.NewGrid(header...)
	for _, h := range n.Shared.Hosts {
		name := ui.Harmless(h.Name)
		if h.Name == n.Shared.Host {
			name += ", this one"
		}
		row := []string{name, left(h)}
		for _, p := range n.Pools {
			row = append(row, fmt.Sprint(p.By[h.Name]))
		}
		g.Add(row...)
	}
	g.Print(w)
	if open := len(n.Shared.Open); open > 0 {
		fmt.Fprintf(w, "%s freed on this host that etcd may not know yet\n", ui.Counted(open, "attachment"))
	}
}

// left says when a host's addresses are free, if nothing is heard of it.
func left(h shared.Host) string {
	text := (time.Duration(h.Left) * time.Second).String()
	if h.Left >= 48*3600 {
		text = ui.Counted(int(h.Left/(24*3600)), "day")
	}
	if h.Left < h.Grace/2 {
		return ui.Bad.Sprint(text) + ", nothing renews it"
	}
	return text
}

func printNetworks(w io.Writer, list []*node.Network) {
	g := ui.NewGrid("NETWORK", "PLUGINS", "POOL", "SIZE", "USED", "", "GONE", "ATTACHMENTS", "FILE")
	g.AlignRight(4, 5, 7, 8)
	for _, w := range list {
		file := ui.Harmless(w.File)
		if file == "" {
			file = ui.Weak.Sprint("none: only attachments name it")
		}
		first := []string{ui.Harmless(w.Name), ui.Harmless(strings.Join(w.Plugins, ", ")), "", "", "", "", coloured(w.Gone), fmt.Sprint(w.Attachments), file}
		if len(w.Pools) == 0 {
			g.Add(first...)
		}
		for _, p := range w.Pools {
			first[2], first[3], first[4], first[5], first[6] = p.Name(), p.SizeText(), fmt.Sprint(p.Used), fullness(p), coloured(int(p.Gone))
			g.Add(first...)
			first[0], first[1], first[7], first[8] = "", "", "", ""
		}
	}
	g.Print(w)
}

// coloured returns a number that should be 0.
func coloured(n int) string {
	if n == 0 {
		return "0"
	}
	return ui.Bad.Sprint(n)
}

// fullness draws how full a pool is, on a terminal, and says it in percent.
func fullness(p *node.Pool) string {
	const width = 10
	colour := map[string]text.Colors{"ok": ui.Good, "weak": ui.Weak, "bad": ui.Bad}[p.Level()]
	percent := fmt.Sprintf("%3d%%", p.Percent())
	if !ui.HasColours() {
		return percent
	}
	filled := (p.Percent()*width + 99) / 100
	return colour.Sprint(strings.Repeat("█", filled)) + text.Faint.Sprint(strings.Repeat("░", width-filled)) + " " + percent
}
