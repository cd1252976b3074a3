package main

import (
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// newWait returns what a pod of Kubernetes does once its init container has installed the plugins: a DaemonSet's pods may not end.
func newWait() *cobra.Command {
	return &cobra.Command{
		Use:     "wait",
		Short:   "Do nothing until a signal comes",
		Long:    "Do nothing until SIGTERM or SIGINT comes. It is for the pods of a DaemonSet, which may not end.",
		Example: "  cnictl wait",
		Hidden:  true,
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			<-ctx.Done()
			return nil
		},
	}
}
