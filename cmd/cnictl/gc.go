package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
)

func newGC() *cobra.Command {
	var (
		node  network.Node
		texts []string
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
`,
		Example: `  cnictl gc demo
  cnictl gc demo --valid 3f2a9c/eth0
  cnictl gc demo --all`,
		Args: arguments(1, 1),
	}
	addNodeFlags(cmd, &node)
	addJSONFlag(cmd)
	cmd.Flags().StringArrayVar(&texts, "valid", nil, "a valid attachment, CONTAINER-ID/INTERFACE; repeatable")
	cmd.Flags().BoolVar(&all, "all", false, "remove every attachment")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all && texts != nil {
			return usagef("--all and --valid exclude each other")
		}
		var valid []types.GCAttachment
		for _, text := range texts {
			id, ifName, _ := strings.Cut(text, "/")
			if id == "" || ifName == "" {
				return usagef("--valid %q is not CONTAINER-ID/INTERFACE, such as 3f2a…/eth0", text)
			}
			valid = append(valid, types.GCAttachment{ContainerID: id, IfName: ifName})
		}
		return collect(cmd, node, args[0], valid, all)
	}
	return cmd
}

func collect(cmd *cobra.Command, node network.Node, name string, valid []types.GCAttachment, all bool) error {
	list, err := node.Load(name)
	if err != nil {
		return err
	}
	switch {
	case list.DisableGC:
		fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has disableGC: nothing is done\n", name)
	case !network.HasVerbsOf110(list):
		fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has cniVersion %s, and plugins know GC since 1.1.0: only attachments of this cache are removed\n", name, list.CNIVersion)
	}
	c, err := node.GC(cmd.Context(), list, valid, all)
	if c == nil || err != nil && wantsJSON(cmd) {
		return err
	}
	_ = output(cmd, c, func(w io.Writer) {
		fmt.Fprintf(w, "network %s: %d attachments removed, %d kept\n", name, len(c.Removed), len(c.Kept))
		for _, a := range c.Removed {
			fmt.Fprintf(w, "  removed  %s/%s\n", a.ContainerID, a.IfName)
		}
		for _, a := range c.Kept {
			fmt.Fprintf(w, "  kept     %s/%s\n", a.ContainerID, a.IfName)
		}
	})
	return err
}
