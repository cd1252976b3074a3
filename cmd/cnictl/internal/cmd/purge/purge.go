// Package purge takes away what networks have left on a node when nobody uses them any more.
package purge

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/removal"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func New() *cobra.Command {
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
		Args: ui.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var nothing removal.ValidFlags
			o, err := nothing.Read(cmd, n)
			if err != nil {
				return err
			}
			return runPurge(cmd, o, applies, n)
		},
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &n.Options)
	ui.AddJSONFlag(cmd)
	ui.AddApplyFlag(cmd, &applies, "remove it")
	return cmd
}

func runPurge(cmd *cobra.Command, o collect.Options, applies bool, where network.Node) error {
	p, r, err := planPurge(cmd, o)
	if err != nil {
		return err
	}
	var errs []error
	if len(p.Refused) > 0 {
		errs = append(errs, plugin.CodeErrorf(types.ErrTryAgainLater, "stop the containers; if another runtime runs them, name its results and networks with --cache-dir and --conf-dir; of what is gone already, and that no cache knows: echo none | cnictl gc --valid-from - --apply",
			"nothing is removed while something may be in use: %s", p.RefusedText()))
	} else if applies {
		p, errs = applyPurge(cmd, o, p, r)
	}
	removal.Note(cmd, r)
	if err := ui.Output(cmd, p, func(w io.Writer) { describePurge(w, p, where, applies) }); err != nil {
		return err
	}
	return ui.Errors(cmd, errs)
}

func planPurge(cmd *cobra.Command, o collect.Options) (*Plan, *collect.Report, error) {
	n := node.Read(cmd.Context(), o.Options)
	r := collect.Plan(cmd.Context(), n, o)
	p, err := NewPlan(cmd.Context(), r.Node(), r)
	return p, r, err
}

// applyPurge removes the attachments, looks again, and removes the rest if nothing has come meanwhile.
func applyPurge(cmd *cobra.Command, o collect.Options, p *Plan, r *collect.Report) (*Plan, []error) {
	stopped := removal.Apply(cmd, r, o)
	if errs := removal.Failures(r); errs != nil || stopped != nil {
		return p, append(errs, stopped)
	}
	now, left, err := planPurge(cmd, o)
	if err != nil {
		return p, []error{err}
	}
	now.Attachments = r.Goes
	isAttachment := func(it *collect.Item) bool { return it.Owner != "" }
	if len(now.Refused) > 0 || slices.ContainsFunc(left.Goes, isAttachment) {
		return now, []error{plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this", "only attachments were removed: something has come meanwhile, or was left")}
	}
	stopped = removal.Apply(cmd, left, o) // what was an attachment's is nobody's now
	if errs := removal.Failures(left); errs != nil || stopped != nil {
		return now, append(errs, stopped)
	}
	if err := now.Remove(cmd.Context()); err != nil {
		return now, []error{err}
	}
	return now, nil
}

func describePurge(w io.Writer, p *Plan, where network.Node, isApplied bool) {
	switch {
	case p.Removed:
		fmt.Fprintf(w, "removed; networks in %s and plugins in %s stay: cnictl uninstall --dir %s removes those\n", where.ConfDir, strings.Join(where.BinDirs, ", "), where.BinDirs[0])
	case len(p.Refused) > 0:
		fmt.Fprintf(w, "nothing is removed: %s in the way\n", ui.Counted(len(p.Refused), "thing"))
	case isApplied:
		fmt.Fprintln(w, ui.Bad.Sprint("not all is removed"))
	case len(p.Attachments)+len(p.Goes) == 0:
		fmt.Fprintln(w, "nothing to remove")
	default:
		fmt.Fprintf(w, "%d to remove, nothing is removed without --apply\n", len(p.Attachments)+len(p.Goes))
	}
	g := ui.NewGrid("", "WHAT", "WHY")
	goes := "would go"
	if p.Removed {
		goes = ui.Good.Sprint("removed")
	}
	for _, t := range p.Refused {
		g.Add(ui.Bad.Sprint("in the way"), ui.Harmless(ui.ShortText(t.What)), ui.Harmless(t.Why))
	}
	for _, it := range p.Attachments {
		state := "would go"
		if it.Outcome != "" {
			state = removal.OutcomeText(it, true)
		}
		g.Add(state, ui.Harmless(ui.ShortText(attachmentText(it))), ui.Harmless(it.Why))
	}
	for _, t := range p.Goes {
		g.Add(goes, ui.Harmless(t.What), ui.Harmless(t.Why))
	}
	for _, t := range p.Stays {
		g.Add(ui.Weak.Sprint("stays"), ui.Harmless(t.What), ui.Harmless(t.Why))
	}
	g.Print(w)
}

func attachmentText(it *collect.Item) string {
	if it.Owner == "" {
		return it.Held[0].What
	}
	return "attachment " + it.Owner
}
