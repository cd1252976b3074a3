package main

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
)

// collected is what gc prints with --json.
type collected struct {
	Network string `json:"network"`
	*network.Collection
}

func newGC() *cobra.Command {
	var (
		f     nodeFlags
		valid []string
		all   bool
	)
	cmd := &cobra.Command{
		Use:   "gc NETWORK",
		Short: "Remove what attachments have left behind (CNI GC)",
		Long: `Remove what a network holds for attachments that are not valid any more:
addresses, links, rules. Valid are those that are named with --valid, and those
made through this cache directory whose namespace still exists. The network is
to have no other users: attachments that a runtime keeps track of elsewhere
have to be named.

With --all nothing is valid, and everything of the network is removed, of
running containers too.
` + environment,
		Example: `  cnictl gc demo
  cnictl gc demo --valid 3f2a9c/eth0
  cnictl gc demo --all`,
		Args: arguments(1, 1),
	}
	f.add(cmd)
	addJSONFlag(cmd)
	cmd.Flags().StringArrayVar(&valid, "valid", nil, "a valid attachment, CONTAINER-ID/INTERFACE; repeatable")
	cmd.Flags().BoolVar(&all, "all", false, "remove every attachment")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		named, err := parseValid(valid, all)
		if err != nil {
			return err
		}
		return collect(cmd, f.node(cmd), args[0], named, all)
	}
	return cmd
}

func parseValid(texts []string, all bool) ([]types.GCAttachment, error) {
	if all && len(texts) > 0 {
		return nil, usagef("--all and --valid exclude each other")
	}
	var valid []types.GCAttachment
	for _, text := range texts {
		a, err := network.ParseValid(text)
		if err != nil {
			return nil, usageError{err}
		}
		valid = append(valid, a)
	}
	return valid, nil
}

func collect(cmd *cobra.Command, node network.Node, name string, valid []types.GCAttachment, all bool) error {
	list, err := node.Load(name)
	if err != nil {
		return err
	}
	if !all {
		known, err := node.Attachments(name)
		if err != nil {
			return err
		}
		valid = append(valid, network.Live(known)...)
	}
	switch {
	case list.DisableGC:
		fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has disableGC: nothing is done\n", name)
	case !network.HasVerbsOf110(list):
		fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has cniVersion %s, and plugins know GC since 1.1.0: only attachments of this cache are removed\n", name, list.CNIVersion)
	}
	collection, err := node.GC(cmd.Context(), list, valid)
	if collection != nil && (err == nil || !wantsJSON(cmd)) {
		describeCollection(cmd, collected{name, collection})
	}
	return err
}

func describeCollection(cmd *cobra.Command, c collected) {
	w := cmd.OutOrStdout()
	if wantsJSON(cmd) {
		printJSON(w, c)
		return
	}
	fmt.Fprintf(w, "network %s: %d attachments removed, %d kept\n", c.Network, len(c.Removed), len(c.Kept))
	for _, a := range c.Removed {
		fmt.Fprintf(w, "  removed  %s/%s\n", a.ContainerID, a.IfName)
	}
	for _, a := range c.Kept {
		fmt.Fprintf(w, "  kept     %s/%s\n", a.ContainerID, a.IfName)
	}
}
