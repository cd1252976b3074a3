// Package leases keeps in etcd what this host has there, and moves what attachments hold from host-local into etcd, and back, while they run.
//
// Both places have an address while the network's file is exchanged, so that neither gives it to anybody else. libcni's caches of
// the attachments name the new configuration in the end: the attachments are checked and repaired by that.
package leases

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/etcd"
)

func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "leases",
		Short:   "Keep what this host has in etcd, and move leases there and back",
		Example: "  cnictl leases keep\n  cnictl leases move lan --to etcd --file new.conflist",
		Args:    ui.Arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLeasesKeep(), newLeasesMove())
	return cmd
}

// renewed is a network whose addresses in etcd were kept, or why they were not.
type renewed struct {
	Network string         `json:"network"`
	Report  *shared.Report `json:"report,omitempty"`
	Error   string         `json:"error,omitempty"`
}

func newLeasesKeep() *cobra.Command {
	var where network.Node
	var name string
	cmd := &cobra.Command{
		Use:   "keep [NETWORK]",
		Short: "Tell etcd that this host is there, and what was freed while etcd was not to be reached",
		Long: `Renew this host's lease in etcd, on which its addresses hang, and free what could
not be freed before: of a network, or of all whose addresses are in etcd. The
agent does so by itself; without it a timer of systemd does.
`,
		Example:           "  cnictl leases keep\n  cnictl leases keep --network lan",
		Args:              ui.NetworkArgument,
		ValidArgsFunction: ui.CompleteNetworks,
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &where.Options)
	ui.AddJSONFlag(cmd)
	ui.AddNetworkFlag(cmd, &name, "only those of this network; NETWORK alone is short for it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		n := node.Read(cmd.Context(), where.Options)
		if err := lookup.RequireNetwork(n, where.ConfDir, name); err != nil {
			return err
		}
		list, failed := []renewed{}, false
		for _, s := range n.Shared() {
			if name != "" && s.Name() != name {
				continue
			}
			k := renewed{Network: s.Name()}
			r, err := s.Renew(cmd.Context())
			if k.Report = r; err != nil {
				k.Report, k.Error, failed = nil, err.Error(), true
			}
			list = append(list, k)
		}
		if name != "" && len(list) == 0 {
			return plugin.ConfigError("cnictl leases keep, without a network, keeps those of all", "network %s has no addresses in etcd", name)
		}
		err := ui.Output(cmd, list, func(w io.Writer) { describeKept(w, list) })
		if err == nil && failed {
			err = ui.Failed
		}
		return err
	}
	return cmd
}

func describeKept(w io.Writer, list []renewed) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no network has its addresses in etcd")
	}
	for _, k := range list {
		if k.Error != "" {
			fmt.Fprintf(w, "%s: %s: %s\n", ui.Harmless(k.Network), ui.Bad.Sprint("not kept"), ui.Harmless(k.Error))
			continue
		}
		until := "this host holds nothing"
		for _, h := range k.Report.Hosts {
			if h.Name == k.Report.Host {
				until = "its addresses are this host's for " + (time.Duration(h.Left) * time.Second).String()
			}
		}
		fmt.Fprintf(w, "%s: %s; %s, %d to be freed\n", ui.Harmless(k.Network), ui.Good.Sprint("kept"), until, len(k.Report.Open))
	}
}

// movedLeases is what leases move prints.
type movedLeases struct {
	Network string        `json:"network"`
	To      string        `json:"to"`
	Applied bool          `json:"applied"`
	Moved   []shared.Held `json:"moved"` // or what would be
	Left    []etcd.Left   `json:"left"`
}

func newLeasesMove() *cobra.Command {
	var (
		where    network.Node
		to, file string
		apply    bool
	)
	cmd := &cobra.Command{
		Use:   "move NETWORK --to etcd|host-local --file FILE",
		Short: "Move what a network's attachments hold from host-local into etcd, or back",
		Long: `Move the addresses that a network's attachments have on this node from host-local
into etcd, or back. FILE is the network's new file, with the other ipam and the
same name; it takes the place of the present one. Containers keep running with
their addresses. Nothing is changed without --apply.

The command names addresses that can't be moved: another host has them by now, or
they lie in none of the ranges. Their containers have to be started anew.
`,
		Example: `  cnictl leases move lan --to etcd --file new.conflist
  cnictl leases move lan --to etcd --file new.conflist --apply`,
		Args:              ui.Arguments(1, 1),
		ValidArgsFunction: ui.CompleteNetworks,
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &where.Options)
	ui.AddJSONFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&to, "to", "", "where to: etcd or host-local")
	flags.StringVar(&file, "file", "", "the network's new file")
	ui.AddApplyFlag(cmd, &apply, "move them")
	ui.Complete(cmd, "to", cobra.FixedCompletions([]string{Etcd, HostLocal}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to != Etcd && to != HostLocal || file == "" {
			return ui.Usagef("--to etcd or --to host-local is needed, and --file with the network's new file")
		}
		o := where.Options
		m, err := NewMove(node.Read(cmd.Context(), o), o, args[0], to, file)
		if err != nil {
			return err
		}
		d := &movedLeases{Network: args[0], To: to, Applied: apply, Left: []etcd.Left{}}
		if apply {
			moved, err := m.Run(cmd.Context())
			if err != nil {
				return err
			}
			d.Moved, d.Left = moved.Moved, append(d.Left, moved.Left...)
		} else if d.Moved, err = m.Plan(cmd.Context()); err != nil {
			return err
		}
		err = ui.Output(cmd, d, d.describe)
		if err == nil && len(d.Left) > 0 {
			err = ui.Failed
		}
		return err
	}
	return cmd
}

func (d *movedLeases) describe(w io.Writer) {
	g := ui.NewGrid("", "ADDRESS", "ATTACHMENT", "WHY")
	word := ui.Weak.Sprint("would move")
	if d.Applied {
		word = ui.Good.Sprint("moved")
	}
	for _, h := range d.Moved {
		g.Add(word, h.Address.String(), ui.Harmless(ui.ShortText(h.ContainerID+"/"+h.IfName)), "")
	}
	for _, l := range d.Left {
		g.Add(ui.Bad.Sprint("left"), l.Address.String(), ui.Harmless(ui.ShortText(l.ContainerID+"/"+l.IfName)), ui.Harmless(l.Why))
	}
	if d.Applied {
		fmt.Fprintf(w, "%d moved to %s, %d left\n", len(d.Moved), d.To, len(d.Left))
	} else {
		fmt.Fprintf(w, "%d to move to %s, nothing is moved without --apply\n", len(d.Moved), d.To)
	}
	g.Print(w)
}
