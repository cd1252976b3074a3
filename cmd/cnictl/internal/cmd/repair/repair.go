// Package repair puts back what a flush or a reload took from attachments.
package repair

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/container"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// repairDocument is what repair prints with --json.
type repairDocument struct {
	DryRun      bool                   `json:"dryRun"`
	Counts      map[repair.Outcome]int `json:"counts"`
	Attachments []*repair.Report       `json:"attachments"`
	Unread      []node.Unread          `json:"unread"`
}

func New() *cobra.Command {
	var (
		where         network.Node
		on            string
		dryRun, leave bool
	)
	cmd := &cobra.Command{
		Use:   "repair [NETWORK | CONTAINER]",
		Short: "Put back what a flush or a reload took from attachments",
		Long: `Look at the attachments of this node, of a network, or of a container, and put
back what the host lacks: rules of the packet filter, ports of bridges, gateways'
addresses, queues. Containers may change what they have inside: that is said,
and put back only for networks with "repair": "all". No container is restarted,
no connection is cut, and what is right stays as it is. CONTAINER is an id or its
beginning, an address, a host end, a pod, a namespace.

With --leave a container is left alone from now on, by the agent too, until
--leave=false takes it back.

The exit code is 1 if something is still missing in the end, or a container that
is there can't be looked at.
`,
		Example: `  cnictl repair
  cnictl repair --dry-run
  cnictl repair --network demo
  cnictl repair 10.88.0.7`,
		Args:              ui.Arguments(0, 1),
		ValidArgsFunction: ui.CompleteNames,
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &where.Options)
	ui.AddJSONFlag(cmd)
	ui.AddNetworkFlag(cmd, &on, "only of this network; NETWORK alone is short for it")
	ui.AddDryRunFlag(cmd, &dryRun)
	cmd.Flags().BoolVar(&leave, "leave", false, "leave CONTAINER alone from now on; --leave=false takes it back")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n := node.Read(cmd.Context(), where.Options)
		name := strings.Join(args, "")
		if n.Network(name) != nil {
			if on != "" {
				return ui.Usagef("%q is short for --network, which is given, too", name)
			}
			on, name = name, ""
		}
		if err := lookup.RequireNetwork(n, where.ConfDir, on); err != nil {
			return err
		}
		attachments, err := chosen(n, on, name)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("leave") {
			if name == "" || on != "" {
				return ui.Usagef("--leave is about all of one container: name it; for all of a network there is its key \"repair\": \"none\"")
			}
			return leaveAlone(cmd, attachments, leave)
		}
		if on == "" && name == "" {
			repair.ForgetLeft(n)
		}
		reports, err := repair.Attachments(cmd.Context(), attachments, repair.Options{
			Plugins: known.Plugins, Path: where.BinDirs, DryRun: dryRun, Progress: counter(cmd),
		})
		d := &repairDocument{DryRun: dryRun, Counts: map[repair.Outcome]int{}, Attachments: reports, Unread: n.Unread}
		for _, r := range reports {
			d.Counts[r.Outcome]++
		}
		if err != nil && ui.WantsJSON(cmd) {
			return err
		}
		if failed := ui.Output(cmd, d, d.describe); failed != nil || err != nil {
			return errors.Join(err, failed)
		}
		if d.Counts[repair.Wrong]+d.Counts[repair.Skipped] > 0 {
			return ui.Failed
		}
		return nil
	}
	return cmd
}

// leaveAlone has the container of attachments left alone, or takes it back.
func leaveAlone(cmd *cobra.Command, attachments []*node.Attachment, isLeft bool) error {
	for _, a := range attachments {
		if a.ContainerID != attachments[0].ContainerID {
			return ui.Usagef("name one container: they are of %s", container.Owners(attachments))
		}
	}
	id := attachments[0].ContainerID
	if err := repair.Leave(attachments, isLeft); err != nil {
		return err
	}
	says := "container %s is left alone, until `cnictl repair --leave=false %[1]s`\n"
	if !isLeft {
		says = "container %s is repaired as ever\n"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), says, id)
	return err
}

// chosen returns the attachments that are meant: those on a network and of a container, "" is all.
func chosen(n *node.Node, on, name string) (list []*node.Attachment, err error) {
	isElsewhere := func(a *node.Attachment) bool { return on != "" && a.Network != on }
	if name == "" {
		return slices.DeleteFunc(slices.Clone(n.Attachments), isElsewhere), nil
	}
	for _, m := range n.Find(name) {
		list = append(list, m.Attachment)
	}
	if list == nil {
		return nil, lookup.Unknown(n, name)
	}
	if list = slices.DeleteFunc(list, isElsewhere); len(list) == 0 {
		return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "`cnictl show "+name+"` says on which it is", "%s is not on network %s", name, on)
	}
	alive := slices.DeleteFunc(slices.Clone(list), func(a *node.Attachment) bool { return a.State == node.Gone })
	for _, a := range alive {
		if a.ContainerID != alive[0].ContainerID {
			return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "name one of them, by its container's id, for example", "%s may be any of %s", name, container.Owners(alive))
		}
	}
	return list, nil
}

// counter counts on standard error what is done, if that is a terminal.
func counter(cmd *cobra.Command) func(done, all int) {
	f, isFile := cmd.ErrOrStderr().(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func(done, all int) {
		fmt.Fprintf(f, "\r%d of %d attachments", done, all)
		if done == all {
			fmt.Fprintf(f, "\r%s\r", strings.Repeat(" ", len("0000000000 of 0000000000 attachments")))
		}
	}
}

func (d *repairDocument) describe(w io.Writer) {
	var counts []string
	for _, o := range repair.Outcomes {
		if d.Counts[o] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", d.Counts[o], o))
		}
	}
	fmt.Fprintf(w, "%s: %s\n", ui.Counted(len(d.Attachments), "attachment"), strings.Join(counts, ", "))
	for _, u := range d.Unread {
		fmt.Fprintf(w, "note: %s: %s\n", ui.Harmless(u.What), ui.Harmless(u.Why))
	}
	for _, r := range d.Attachments {
		if r.Outcome == repair.Right || r.Outcome == repair.Gone && len(r.Plugins) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s  %s/%s/%s", word(r.Outcome), r.Network, r.ContainerID, r.IfName)
		if r.Why != "" {
			fmt.Fprintf(w, ": %s", ui.Harmless(r.Why))
		}
		fmt.Fprintln(w)
		for i, f := range r.Plugins {
			isLast := i+1 == len(r.Plugins) || r.Plugins[i+1].Plugin != f.Plugin || r.Plugins[i+1].Remedy != f.Remedy
			fmt.Fprintf(w, "  %s: %s\n", f.Plugin, ui.Harmless(f.Summary))
			for _, what := range f.PutBack {
				fmt.Fprintf(w, "    put back: %s\n", ui.Harmless(what))
			}
			if f.Left != "" && f.Left != f.Summary {
				fmt.Fprintf(w, "    left:     %s\n", ui.Harmless(f.Left))
			}
			if f.Remedy != "" && isLast {
				fmt.Fprintf(w, "    remedy:   %s\n", ui.Harmless(f.Remedy))
			}
		}
		if len(r.Foreign) > 0 {
			fmt.Fprintf(w, "  not asked: %s, which is not cnibox's\n", strings.Join(r.Foreign, ", "))
		}
	}
}

func word(o repair.Outcome) string {
	switch o {
	case repair.Repaired:
		return ui.Good.Sprint(o)
	case repair.Wrong:
		return ui.Bad.Sprint(o)
	}
	return ui.Weak.Sprint(o)
}
