package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/box"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "cnictl",
		Short: "Install cnibox's plugins, and use networks by hand",
		Long: `cnictl installs the plugins of cnibox on a node, and does by hand what a
container runtime does with them: attach a namespace to a network, check it,
detach it, collect what is left over, run a command in a namespace of its own.

Exit codes: 0 done, 1 failed, 2 wrong usage; of "run", that of the command.`,
		Example: `  cnictl install --dir /opt/cni/bin
  cnictl run --net demo -p 8080:80 -- busybox httpd -f -p 80
  cnictl add demo /run/netns/web -p 8080:80/tcp`,
		Version: box.Version + " (plugins v" + box.PluginsVersion + ")",

		SilenceErrors: true, // printed by fail
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("cnictl v{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newInstall(), newUninstall(), newList(),
		newRun(), newAdd(), newDel(), newCheck(), newGC(), newStatus(),
	)
	return root
}

// noCommand makes what cobra says about an unknown command a usage error.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("there is no command %q; cnictl --help lists them", args[0])
}

// arguments takes from least to most positional arguments, which are called as
// in the usage line.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("an argument is missing: %s", cmd.UseLine())
		case len(args) > most:
			return usagef("%q is one argument too many: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

// usageError is the caller's mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
