// Package check answers whether an attachment is as ADD made it: CNI CHECK by hand.
package check

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/attachment"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func New() *cobra.Command {
	return attachment.Command(&cobra.Command{
		Use:   "check NETWORK [NETNS]",
		Short: "Check that an attachment is as it was made (CNI CHECK)",
		Long: `Check that an attachment is still as it was made. Values that are not given are
taken from what was kept of the add.
`,
		Example: "  cnictl check demo /run/netns/web",
	}, func(cmd *cobra.Command, f *attachment.Flags, network string, rt *libcni.RuntimeConf) error {
		list, err := f.Load(network)
		if err != nil {
			return err
		}
		if _, err := f.Complete(network, rt); err != nil {
			return err
		}
		if err := f.RequireResult(cmd.Context(), network, rt); err != nil {
			return err
		}
		if list.DisableCheck {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has disableCheck: no plugin is asked\n", list.Name)
		}
		err = f.CNI().CheckNetworkList(cmd.Context(), list, rt)
		if errors.Is(err, libcni.ErrorCheckNotSupp) {
			return plugin.CodeErrorf(types.ErrIncompatibleCNIVersion, "it needs 0.4.0 or newer", "network %s: %w", list.Name, err)
		}
		if err != nil {
			return err
		}
		return attachment.PrintStatus(cmd, list.Name, rt, "ok")
	})
}
