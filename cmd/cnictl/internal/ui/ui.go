// Package ui is what all commands of cnictl share towards the person who types them: flags and their completion, output for people and
// machines, failures and exit codes, progress, words.
package ui

import (
	"io"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Execute runs the command that arguments name, prints its error, and returns the exit code.
func Execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	setColours(stdout)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return requireAllowed(cmd) }
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	return int(fail(cmd, err))
}

// needsRoot is the annotation of commands that need root.
const needsRoot = "needs root"

// NeedsRoot notes that a command does nothing right without root: what it could not read would look as if it was not there.
func NeedsRoot(cmd *cobra.Command) {
	cmd.Annotations = map[string]string{needsRoot: ""}
}

// requireAllowed refuses what can't be done, before anything is.
func requireAllowed(cmd *cobra.Command) error {
	if cmd.Flags().Changed("apply") && cmd.Flags().Changed("dry-run") {
		return Usagef("--apply and --dry-run exclude each other")
	}
	if _, needs := cmd.Annotations[needsRoot]; !needs || IsRoot() {
		return nil
	}
	return plugin.CodeErrorf(types.ErrPluginNotAvailable, "sudo "+cmd.CommandPath()+" …", "it needs root")
}

// IsRoot reports whether the process has root's rights over the network, by its user or by capabilities alone.
func IsRoot() bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return os.Geteuid() == 0 || err == nil && data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}
