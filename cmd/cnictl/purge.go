package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/purge"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func newPurge() *cobra.Command {
	var (
		n       network.Node
		applies bool
	)
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Take the node back to what it was before containers were attached",
		Long: `Say what networks have left on the node, and with --apply remove it: attachments
that nobody uses, as gc does, then bridges, tables, chains and state, of cnibox and
of the reference plugins. It refuses while an attachment may be in use, and names
it. Configurations and plugins stay, and what others have made.
`,
		Example: `  cnictl purge
  cnictl purge --apply`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var nothing validFlags
			o, err := nothing.options(cmd, n)
			if err != nil {
				return err
			}
			return runPurge(cmd, o, applies, n)
		},
	}
	addNodeFlags(cmd, &n)
	addJSONFlag(cmd)
	cmd.Flags().BoolVar(&applies, "apply", false, "remove it")
	return cmd
}

func runPurge(cmd *cobra.Command, o collect.Options, applies bool, where network.Node) error {
	p, r, err := planPurge(cmd, o)
	if err != nil {
		return err
	}
	var errs []error
	if len(p.Refused) > 0 {
		errs = append(errs, plugin.Errorf("stop the containers; if another runtime runs them, name its results and networks with --cache-dir and --conf-dir; of what is gone already, and that no cache knows: echo none | cnictl gc --valid-from - --apply",
			"nothing is removed while something may be in use: %s", p.RefusedText()))
	} else if applies {
		p, errs = applyPurge(cmd, o, p, r)
	}
	note(cmd, r)
	if err := output(cmd, p, func(w io.Writer) { describePurge(w, p, where) }); err != nil {
		return err
	}
	return findings(cmd, errs)
}

func planPurge(cmd *cobra.Command, o collect.Options) (*purge.Plan, *collect.Report, error) {
	n := node.Read(cmd.Context(), o.Options)
	r := collect.Plan(cmd.Context(), n, o)
	p, err := purge.New(cmd.Context(), r.Node(), r)
	return p, r, err
}

// applyPurge removes the attachments, looks again, and removes the rest if nothing has come meanwhile.
func applyPurge(cmd *cobra.Command, o collect.Options, p *purge.Plan, r *collect.Report) (*purge.Plan, []error) {
	stopped := apply(cmd, r, o)
	if errs := failures(r); errs != nil || stopped != nil {
		return p, append(errs, stopped)
	}
	now, left, err := planPurge(cmd, o)
	if err != nil {
		return p, []error{err}
	}
	now.Attachments = r.Goes
	isAttachment := func(it *collect.Item) bool { return it.Owner != "" }
	if len(now.Refused) > 0 || slices.ContainsFunc(left.Goes, isAttachment) {
		return now, []error{plugin.Errorf("repeat this", "only attachments were removed: something has come meanwhile, or was left")}
	}
	stopped = apply(cmd, left, o) // what was an attachment's is nobody's now
	if errs := failures(left); errs != nil || stopped != nil {
		return now, append(errs, stopped)
	}
	if err := now.Remove(cmd.Context()); err != nil {
		return now, []error{err}
	}
	return now, nil
}

func describePurge(w io.Writer, p *purge.Plan, where network.Node) {
	g := newGrid("", "WHAT", "WHY")
	goes := "would go"
	if p.Removed {
		goes = good.Sprint("removed")
	}
	for _, t := range p.Refused {
		g.add(bad.Sprint("in the way"), harmless(shortText(t.What)), harmless(t.Why))
	}
	for _, it := range p.Attachments {
		state := "would go"
		if it.Outcome != "" {
			state = outcomeText(it, true)
		}
		g.add(state, harmless(shortText(attachmentText(it))), harmless(it.Why))
	}
	for _, t := range p.Goes {
		g.add(goes, harmless(t.What), harmless(t.Why))
	}
	for _, t := range p.Stays {
		g.add(weak.Sprint("stays"), harmless(t.What), harmless(t.Why))
	}
	g.print(w)
	switch {
	case p.Removed:
		fmt.Fprintf(w, "removed; networks in %s and plugins in %s stay: cnictl uninstall --dir %s removes those\n", where.ConfDir, where.BinDirs, where.BinDirs)
	case len(p.Attachments)+len(p.Goes) == 0:
		fmt.Fprintln(w, "nothing to remove")
	case len(p.Refused) == 0:
		fmt.Fprintln(w, "nothing is removed without --apply")
	}
}

func attachmentText(it *collect.Item) string {
	if it.Owner == "" {
		return it.Held[0].What
	}
	return "attachment " + it.Owner
}
