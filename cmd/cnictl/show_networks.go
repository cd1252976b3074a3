package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/plugins"
)

func newShowNetworks() *cobra.Command {
	f := &showFlags{Options: node.Options{Plugins: plugins.All}}
	cmd := &cobra.Command{
		Use:   "networks",
		Short: "Show the networks of this node, with how full their pools are",
		Long: `Show the networks of this node: what they are made of, and how many addresses of
their pools are used, also by attachments that are gone. A network without a
file is one that only attachments name.
`,
		Example: "  cnictl show networks",
		Args:    arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, f.networks) },
	}
	f.add(cmd)
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
	return s, nil
}

func (s *shownNetworks) print(w io.Writer, _ *showFlags) { printNetworks(w, s.Networks) }

func printNetworks(w io.Writer, list []*node.Network) {
	g := newGrid("NETWORK", "PLUGINS", "POOL", "SIZE", "USED", "", "GONE", "ATTACHMENTS", "FILE")
	g.alignRight(4, 5, 7, 8)
	for _, w := range list {
		file := harmless(w.File)
		if file == "" {
			file = weak.Sprint("none: only attachments name it")
		}
		first := []string{harmless(w.Name), harmless(strings.Join(w.Plugins, ", ")), "", "", "", "", coloured(w.Gone), fmt.Sprint(w.Attachments), file}
		if len(w.Pools) == 0 {
			g.add(first...)
		}
		for _, p := range w.Pools {
			first[2], first[3], first[4], first[5], first[6] = p.Name(), p.SizeText(), fmt.Sprint(p.Used), fullness(p), coloured(int(p.Gone))
			g.add(first...)
			first[0], first[1], first[7], first[8] = "", "", "", ""
		}
	}
	g.print(w)
}

// coloured returns a number that should be 0.
func coloured(n int) string {
	if n == 0 {
		return "0"
	}
	return bad.Sprint(n)
}

// fullness draws how full a pool is, on a terminal, and says it in percent.
func fullness(p *node.Pool) string {
	const width = 10
	colour := map[string]text.Colors{"ok": good, "weak": weak, "bad": bad}[p.Level()]
	percent := fmt.Sprintf("%3d%%", p.Percent())
	if !hasColours() {
		return percent
	}
	filled := (p.Percent()*width + 99) / 100
	return colour.Sprint(strings.Repeat("█", filled)) + text.Faint.Sprint(strings.Repeat("░", width-filled)) + " " + percent
}
