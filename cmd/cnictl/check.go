package main

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	return attachmentCommand(&cobra.Command{
		Use:   "check NETWORK [NETNS]",
		Short: "Check that an attachment is as it was made (CNI CHECK)",
		Long: `Check that an attachment is still as it was made. What is not given is taken
from what was kept of the add.
`,
		Example: "  cnictl check demo /run/netns/web",
	}, func(cmd *cobra.Command, f *attachmentFlags, network string, rt *libcni.RuntimeConf) error {
		if _, err := f.Complete(network, rt); err != nil {
			return err
		}
		list, err := f.Load(network)
		if err != nil {
			return err
		}
		if list.DisableCheck {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has disableCheck: no plugin is asked\n", list.Name)
		}
		err = f.CNI().CheckNetworkList(cmd.Context(), list, rt)
		if errors.Is(err, libcni.ErrorCheckNotSupp) {
			return fmt.Errorf("network %s: %w; it needs 0.4.0 or newer", list.Name, err)
		}
		if err != nil {
			return err
		}
		return printStatus(cmd, list.Name, rt, "ok")
	})
}
