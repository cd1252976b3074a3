// Package add attaches a network namespace to a network: CNI ADD by hand.
package add

import (
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/attachment"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
)

func New() *cobra.Command {
	return attachment.Command(&cobra.Command{
		Use:   "add NETWORK [NETNS]",
		Short: "Attach a network namespace to a network (CNI ADD)",
		Long: `Attach a network namespace to a network, and print what came of it; with --json
the result of the plugins as it is.

When it fails, what some plugins of the network have done already may still be
there: cnictl del with the same arguments removes it.
`,
		Example: `  ip netns add web
  cnictl add demo /run/netns/web
  cnictl add demo /run/netns/web -p 8080:80 -p '[::1]:5353:53/udp' --json`,
	}, func(cmd *cobra.Command, f *attachment.Flags, network string, rt *libcni.RuntimeConf) error {
		if rt.NetNS == "" {
			return ui.Usagef("the namespace is missing: give its path as NETNS, such as /run/netns/web (ip netns add web)")
		}
		list, err := f.LoadToAdd(network)
		if err == nil {
			err = f.CheckResult(network, rt)
		}
		if err != nil {
			return err
		}
		if f.DryRun {
			return attachment.PrintStatus(cmd, list.Name, rt, "would be attached")
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		result, err := f.CNI().AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		r, err := types100.NewResultFromResult(result)
		if err != nil {
			return fmt.Errorf("read the result of network %s: %w", list.Name, err)
		}
		return ui.Output(cmd, result, func(w io.Writer) { attachment.Describe(w, list.Name, rt, r) })
	})
}
