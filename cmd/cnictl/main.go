// Command cnictl is the operator's side of cnibox: it installs the plugins, and does by hand what a container runtime does with them.
package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/box"
	"github.com/cnibox/cnibox/pkg/detach"
	"github.com/cnibox/cnibox/plugins/main/tap"
)

// The main thread stays with the main goroutine, so that no other one, which may change its thread's namespaces, makes it look
// as if the process had.
func init() { runtime.LockOSThread() }

func main() {
	// Output that nobody reads is an error of who writes it, and no reason to leave something half done. The programs that are run
	// get the signal as ever.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	detach.Serve()
	tap.ServeLabelled()
	os.Exit(execute(newRoot(), os.Args[1:], os.Stdout, os.Stderr))
}

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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q; cnictl --help lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("cnictl v{{.Version}}\n")
	root.AddCommand(
		newShow(), newLog(), newDoctor(),
		newInstall(), newUninstall(), newList(), newNew(), newLint(),
		newProbe(), newExec(), newCapture(), newExplain(),
		newRun(), newAdd(), newDel(), newCheck(), newGC(), newRelease(), newPurge(), newStatus(), newRepair(), newLeases(),
		newBugreport(), newMetrics(), newAgent(),
	)
	return root
}
