// Package release frees one address whose attachment is gone, or says whose it is.
package release

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/removal"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// released is what release prints with --json.
type released struct {
	Address netip.Addr    `json:"address"`
	DryRun  bool          `json:"dryRun"`
	Held    bool          `json:"held"`           // somebody had it
	Item    *collect.Item `json:"item,omitempty"` // what was released, with all that hangs on it
}

func New() *cobra.Command {
	var (
		n      network.Node
		valid  removal.ValidFlags
		on     string
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "release ADDRESS",
		Short: "Free one address, if whoever has it is gone",
		Long: `Free an address whose attachment is gone, with all that the attachment has, since
rules may lead to it. It is looked at with the care of gc: if the attachment may be
in use, it is said whose it is, and nothing is done.
`,
		Example: `  cnictl release 10.88.0.7
  cnictl release 10.88.0.7 --network demo --dry-run`,
		Args:              ui.Arguments(1, 1),
		ValidArgsFunction: ui.CompleteNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := netip.ParseAddr(args[0])
			if err != nil {
				return ui.Usagef("%q is no IP address", args[0])
			}
			o, err := valid.Read(cmd, n)
			if err != nil {
				return err
			}
			return release(cmd, address, on, o, dryRun)
		},
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &n.Options)
	ui.AddJSONFlag(cmd)
	valid.Add(cmd)
	ui.AddNetworkFlag(cmd, &on, "the network that has lent it, if several have")
	ui.AddDryRunFlag(cmd, &dryRun)
	return cmd
}

func release(cmd *cobra.Command, address netip.Addr, on string, o collect.Options, dryRun bool) error {
	n := node.Read(cmd.Context(), o.Options)
	if err := lookup.RequireNetwork(n, o.ConfDir, on); err != nil {
		return err
	}
	holders := holdersOf(n, address, on)
	doc := &released{Address: address, DryRun: dryRun, Held: holders != nil}
	switch {
	case holders == nil && len(n.Unread) > 0:
		return plugin.CodeErrorf(types.ErrIOFailure, "make it readable, and repeat this", "nobody is found who has %s, and not all could be read: %s: %s", address, n.Unread[0].What, n.Unread[0].Why)
	case holders == nil:
		return ui.Output(cmd, doc, func(w io.Writer) { fmt.Fprintf(w, "%s is free: nobody has it\n", address) })
	case len(holders) > 1:
		return severalHold(address, holders)
	}
	o.Network = holders[0].network
	r := collect.Plan(cmd.Context(), n, o)
	at := slices.IndexFunc(r.Goes, func(it *collect.Item) bool {
		return it.Owner == holders[0].owner && (it.Owner != "" || it.Held[0].What == holders[0].what)
	})
	if at < 0 {
		removal.Note(cmd, r)
		return refusal(r, holders[0], address)
	}
	doc.Item = r.Goes[at]
	if !dryRun {
		r.Goes = r.Goes[at : at+1]
		ctx := context.WithoutCancel(cmd.Context())
		r.Free(ctx, doc.Item, o)
		r.Sweep(ctx, o)
	}
	if err := ui.Output(cmd, doc, doc.describe); err != nil {
		return err
	}
	switch {
	case doc.Item.Err() != nil:
		return ui.Errors(cmd, []error{doc.Item.Err()})
	case doc.Item.Outcome == collect.Skipped:
		return ui.Failed
	}
	return nil
}

// holder is who has an address.
type holder struct {
	network, owner string // owner is "" if a lease is nobody's
	what           string // that lease
	since          *time.Time
}

// name says who it is, for people.
func (h holder) name() string {
	name := "nobody"
	if h.owner != "" {
		name = h.owner
	}
	if h.since != nil {
		name += ", for " + ui.Age(*h.since)
	}
	return name
}

// holdersOf returns who has an address, on one network or, for "", on all.
func holdersOf(n *node.Node, address netip.Addr, on string) (list []holder) {
	for _, a := range n.Attachments {
		has := slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return p.Addr() == address })
		if has && (on == "" || a.Network == on) {
			list = append(list, holder{network: a.Network, owner: a.Owner, since: a.Since})
		}
	}
	for _, t := range n.Unowned {
		if own, ok := t.Address(); ok && own == address && (on == "" || t.Network == on) {
			list = append(list, holder{network: t.Network, owner: t.Owner, what: t.What, since: t.Since})
		}
	}
	return list
}

func severalHold(address netip.Addr, list []holder) error {
	var names, networks []string
	for _, h := range list {
		names, networks = append(names, h.name()), append(networks, h.network)
	}
	slices.Sort(networks)
	remedy := "name a network with --network: " + strings.Join(slices.Compact(networks), ", ")
	if networks[0] == networks[len(networks)-1] {
		remedy = fmt.Sprintf("`cnictl gc %s` says which of them are gone, and removes them with --apply", networks[0])
	}
	return plugin.CodeErrorf(types.ErrUnknownContainer, remedy, "several have %s: %s", address, strings.Join(names, "; "))
}

// refusal says whose an address is, and why it is not released.
func refusal(r *collect.Report, h holder, address netip.Addr) error {
	begin := fmt.Sprintf("%s is not released: it is lent to %s", address, h.name())
	for _, s := range r.Stays {
		switch {
		case s.Owner != h.owner || s.What != h.what:
		case s.State == node.Alive:
			return plugin.CodeErrorf(types.ErrTryAgainLater, "stop the container, or detach it: "+delOf(s), "%s, and that is in use: %s", begin, s.Why)
		case s.Why == collect.Stopped:
			return plugin.CodeErrorf(types.ErrTryAgainLater, r.Stops[0].Remedy, "%s; %s", begin, r.Stops[0].Why)
		default:
			return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this later; if it is gone for certain: "+delOf(s), "%s: %s", begin, s.Why)
		}
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this", "%s, and that has changed meanwhile", begin)
}

func delOf(s collect.Stay) string {
	return fmt.Sprintf("cnictl del %s --id %s --ifname %s", s.Network, ui.Dash(s.ContainerID), ui.Dash(s.IfName))
}

func (d *released) describe(w io.Writer) {
	it := d.Item
	whose := it.Why
	if it.Owner != "" {
		whose = fmt.Sprintf("it is lent to %s, and %s", ui.Harmless(it.Owner), ui.Harmless(it.Why))
	}
	switch {
	case d.DryRun:
		fmt.Fprintf(w, "%s would be released: %s\n", d.Address, whose)
	case it.Outcome == collect.Removed:
		fmt.Fprintf(w, "%s is %s: %s\n", d.Address, ui.Good.Sprint("released"), whose)
	default:
		fmt.Fprintf(w, "%s is %s: %s\n", d.Address, ui.Bad.Sprint("not released"), ui.Harmless(it.Reason))
	}
	for _, t := range it.Held {
		if own, ok := t.Address(); !ok || own != d.Address {
			fmt.Fprintf(w, "  with it: %s\n", ui.Harmless(t.What))
		}
	}
}
