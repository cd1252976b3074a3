// Package gc answers what is left over of attachments that are gone, and removes it.
package gc

import (
	"fmt"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/removal"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trust"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// gcFlags are those of gc.
type gcFlags struct {
	network.Node
	removal.ValidFlags
	apply        bool
	network      string
	report, from string // files
}

func New() *cobra.Command {
	var f gcFlags
	cmd := &cobra.Command{
		Use:   "gc [NETWORK]",
		Short: "Say what is left over of attachments that are gone, and remove it",
		Long: `Say what attachments hold that are gone: addresses, links, rules. With --apply it
is removed. Things that may be in use never are, and gc says why: they have a
namespace or cannot be looked at, a container runtime says that it runs them, or
they are not a minute old. A thing that gc is not sure of stays, and nothing else
stays because of it.
`,
		Example: `  cnictl gc
  cnictl gc --network demo --apply
  cnictl gc --report FILE && cnictl gc --from FILE --apply
  cnictl gc --network demo --valid 3f2a9c/eth0`,
		Args:              ui.NetworkArgument,
		ValidArgsFunction: ui.CompleteNetworks,
		RunE:              func(cmd *cobra.Command, _ []string) error { return gc(cmd, &f) },
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &f.Node.Options)
	ui.AddJSONFlag(cmd)
	f.ValidFlags.Add(cmd)
	flags := cmd.Flags()
	ui.AddNetworkFlag(cmd, &f.network, "only of this network; NETWORK alone is short for it")
	ui.AddApplyFlag(cmd, &f.apply, "remove it")
	flags.StringVar(&f.report, "report", "", "write what would go to a file, for --from")
	flags.StringVar(&f.from, "from", "", "only what a report lists and what is still as it says there")
	return cmd
}

func gc(cmd *cobra.Command, f *gcFlags) error {
	o, err := f.Read(cmd, f.Node)
	if err != nil {
		return err
	}
	var listed *collect.Report
	if f.from != "" {
		if f.network != "" || f.report != "" {
			return ui.Usagef("--from excludes --report and a network: it is about what the report lists")
		}
		if listed, err = readReport(f.from); err != nil {
			return err
		}
		f.network = listed.Network
	}
	o.Network, o.Shared = f.network, true
	n := node.Read(cmd.Context(), o.Options)
	if err := lookup.RequireNetwork(n, o.ConfDir, f.network); err != nil {
		return err
	}
	r := collect.Plan(cmd.Context(), n, o)
	if f.report != "" {
		if err := writeReport(f.report, r); err != nil {
			return err
		}
	}
	if listed != nil {
		r.Restrict(listed)
	}
	var stopped error
	if f.apply {
		stopped = removal.Apply(cmd, r, o)
	}
	removal.Note(cmd, r)
	if err := ui.Output(cmd, r, func(w io.Writer) { describeReport(w, r, f.apply) }); err != nil {
		return err
	}
	return ui.Errors(cmd, append(removal.Failures(r), stopped))
}

func readReport(path string) (*collect.Report, error) {
	text, err := state.Read(path)
	if err == nil {
		r, err := collect.Decode(text)
		if err == nil {
			return r, nil
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return nil, fmt.Errorf("read the report: %w", err)
}

func writeReport(path string, r *collect.Report) error {
	text, err := ui.AsJSON(r)
	if err == nil {
		err = trust.Write(path, text, 0o600)
	}
	if err != nil {
		return plugin.CodeErrorf(types.ErrIOFailure, "name another file with --report", "write the report: %w", err)
	}
	return nil
}

func describeReport(w io.Writer, r *collect.Report, isApplied bool) {
	g := ui.NewGrid("", "NETWORK", "ATTACHMENT", "HOLDS", "WHY")
	counts := map[collect.Outcome]int{}
	for _, it := range r.Goes {
		counts[it.Outcome]++
		var holds []string
		for _, t := range it.Held {
			holds = append(holds, t.What)
		}
		why := it.Why
		if it.Reason != "" {
			why = it.Reason
		}
		g.Add(removal.OutcomeText(it, isApplied), ui.Dash(ui.Harmless(it.Network)), ui.Dash(ui.Harmless(ui.ShortText(it.Name()))), ui.Dash(ui.Harmless(strings.Join(holds, ", "))), ui.Harmless(why))
	}
	inUse := 0
	for _, s := range r.Stays {
		if s.State == node.Alive {
			inUse++
			continue
		}
		g.Add(ui.Weak.Sprint("stays"), ui.Dash(ui.Harmless(s.Network)), ui.Dash(ui.Harmless(ui.ShortText(s.Name()))), ui.Harmless(s.What), ui.Harmless(s.Why))
	}
	rest := fmt.Sprintf("%d in use, %d others stay", inUse, len(r.Stays)-inUse)
	switch {
	case isApplied:
		fmt.Fprintf(w, "%d removed, %d skipped, %d failed; %s\n", counts[collect.Removed], counts[collect.Skipped], counts[collect.Failed], rest)
	case counts[""] == 0:
		fmt.Fprintf(w, "nothing to remove; %s\n", rest)
	default:
		fmt.Fprintf(w, "%d to remove, nothing is removed without --apply; %s\n", counts[""], rest)
	}
	g.Print(w)
}
