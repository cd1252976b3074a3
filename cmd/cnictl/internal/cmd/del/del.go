// Package del detaches a network namespace from a network, with what was kept of the add: CNI DEL by hand.
package del

import (
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/attachment"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func New() *cobra.Command {
	return attachment.Command(&cobra.Command{
		Use:   "del NETWORK [NETNS]",
		Short: "Detach a network namespace from a network (CNI DEL)",
		Long: `Detach a network namespace from a network. It is no error if it is not attached
or the namespace is gone. Values that are not given are taken from what was kept
of the add, the network too if its file is gone. If a plugin is missing or fails,
the others do their part all the same, and it is said which one did not.
`,
		Example: `  cnictl del demo /run/netns/web
  cnictl del demo --id 3f2a9c`,
	}, func(cmd *cobra.Command, f *attachment.Flags, network string, rt *libcni.RuntimeConf) error {
		cached, err := f.Complete(network, rt)
		if err != nil {
			return err
		}
		list, err := f.Load(network)
		if err != nil && cached != nil {
			list, err = libcni.NetworkConfFromBytes(cached)
		}
		if err != nil {
			return err
		}
		if f.DryRun {
			return attachment.PrintStatus(cmd, list.Name, rt, "would be deleted")
		}
		known := cached != nil || f.Node.Holds(cmd.Context(), list.Name, rt.ContainerID, rt.IfName)
		// A plugin that is at work when cnictl is interrupted finishes.
		if err := f.Del(cmd.Context(), list, rt); err != nil {
			return plugin.CodeErrorf(plugin.AsError(err).Code, "what the other plugins had made is removed; correct that one, and repeat this",
				"not all of %s of %s on network %s is deleted: %w", rt.IfName, rt.ContainerID, list.Name, err)
		}
		if !known {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: nothing was known of %s of %s; `cnictl show` lists what is attached\n", rt.IfName, ui.Harmless(rt.ContainerID))
		}
		return attachment.PrintStatus(cmd, list.Name, rt, "deleted")
	})
}
