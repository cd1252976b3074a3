// Command cnictl is the operator's side of cnibox: it installs the plugins, and does by hand what a container runtime does with them.
package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/add"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/agent"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/bugreport"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/capture"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/check"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/del"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/doctor"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/exec"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/explain"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/gc"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/install"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/leases"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/lint"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/list"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/log"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/metrics"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/newnet"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/probe"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/purge"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/release"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/repair"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/run"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/show"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/status"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/trace"
	_ "github.com/cnibox/cnibox/cmd/cnictl/internal/heap"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/pkg/process/detach"
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
	os.Exit(ui.Execute(newRoot(), explain.Sentences(os.Args[1:]), os.Stdout, os.Stderr))
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
  cnictl run --network demo -p 8080:80 -- busybox httpd -f -p 80
  cnictl add demo /run/netns/web -p 8080:80/tcp`,
		Version: box.Version + " (plugins v" + box.PluginsVersion + ")",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return ui.Usagef("there is no command %q; cnictl --help lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("cnictl v{{.Version}}\n")
	root.AddCommand(
		show.New(), log.New(), doctor.New(),
		install.New(), install.NewUninstall(), list.New(), newnet.New(), lint.New(),
		trace.New(), probe.New(), exec.New(), capture.New(), explain.New(),
		run.New(), add.New(), del.New(), check.New(), gc.New(), release.New(), purge.New(), status.New(), repair.New(), leases.New(),
		bugreport.New(), metrics.New(), agent.New(),
	)
	return root
}
