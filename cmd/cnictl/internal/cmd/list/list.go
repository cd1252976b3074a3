// Package list answers which plugins cnibox has.
package list

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/plugins/known"
)

// listed is one plugin as list --json prints it.
type listed struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Summary string `json:"summary"`
}

func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plugins of cnibox",
		Long:  "List the plugins of cnibox: the name to write as \"type\" in a network, and what it does.",
		Args:  ui.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows := []listed{}
			for _, p := range known.Plugins {
				rows = append(rows, listed{p.Name, string(p.Kind), p.Summary})
			}
			return ui.Output(cmd, rows, func(w io.Writer) {
				g := ui.NewGrid("NAME", "KIND", "SUMMARY")
				for _, p := range rows {
					g.Add(p.Name, p.Kind, p.Summary)
				}
				g.Print(w)
			})
		},
	}
	ui.AddJSONFlag(cmd)
	return cmd
}
