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
		Short: "Remove attachments whose namespace is gone",
		Long: `Remove the attachments of a network whose namespace is gone: addresses, links,
rules. Nothing is removed of what may be in use: that is what is named with
--valid, whose namespace is there or can't be looked at, whose result can't be
read, and what is not a minute old. If the network holds something for an
attachment that the cache directory knows nothing of, it stops and says whose.

With --all everything of the network is removed, of running containers too.
`,
		Example: `  cnictl gc demo
  cnictl gc demo --valid 3f2a9c/eth0
  cnictl gc demo --all`,
		Args:              arguments(1, 1),
		ValidArgsFunction: completeNetworks,
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
	case all && !network.HasVerbsOf110(list):
		fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has cniVersion %s, and plugins know GC since 1.1.0: only attachments of this cache are removed\n", name, list.CNIVersion)
	}
	var c *network.Collection
	switch {
	case list.DisableGC:
		c = network.NewCollection(name, nil)
	case all:
		c, err = node.GCAll(cmd.Context(), list)
	default:
		c, err = node.GC(cmd.Context(), list, valid)
	}
	if c == nil || err != nil && wantsJSON(cmd) {
		return err
	}
	for _, text := range c.Unread {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s: what it is about counts as in use\n", text)
	}
	_ = output(cmd, c, func(w io.Writer) {
		fmt.Fprintf(w, "network %s: %d attachments removed, %d kept\n", name, len(c.Removed), len(c.Kept))
		for _, a := range c.Removed {
			fmt.Fprintf(w, "  removed  %s/%s\n", a.ContainerID, a.IfName)
		}
		for _, a := range c.Kept {
			fmt.Fprintf(w, "  kept     %s/%s: %s\n", a.ContainerID, a.IfName, a.Why)
		}
	})
	return err
}
