// Package exec runs a command of the host in a container's network.
package exec

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/container"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/sandbox"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

func New() *cobra.Command {
	var o node.Options
	cmd := &cobra.Command{
		Use:   "exec [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command of the host in a container's network",
		Long: `Run a command in a container's network namespace, and in nothing else of it: the
command is the host's, and sees the host's files. If the network named DNS
servers for the container, it sees them in /etc/resolv.conf. NAME is an address,
the id of a container or its beginning, a pod, a host end, a published port, a MAC
address, or a namespace or its path.

Signals are passed on to the command. The exit code is that of the command, or
128 + N if signal N ended it.
`,
		Example: `  cnictl exec 10.88.0.7 -- ip address
  cnictl exec web -- ss -tlnp`,
		Args:              ui.Arguments(2, 1<<20),
		ValidArgsFunction: ui.CompleteNames,
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &o)
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		command := args[1:]
		if command[0] == "--" {
			command = command[1:]
		}
		if len(command) == 0 {
			return ui.Usagef("an argument is missing: %s", cmd.UseLine())
		}
		return execIn(cmd, o, args[0], command)
	}
	return cmd
}

func execIn(cmd *cobra.Command, o node.Options, name string, args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("find the command to run: %w", err)
	}
	c, err := container.Find(cmd.Context(), o, name)
	if err != nil {
		return err
	}
	command := exec.Command(path, args[1:]...)
	command.Args[0] = args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	signals, stop := sandbox.Signals()
	defer stop()
	if err := sandbox.Start(command, c.Netns, resolvConf(c.Attachments)); err != nil {
		return fmt.Errorf("run %s in the network of %s: %w", args[0], name, err)
	}
	code, err := sandbox.Wait(command, signals)
	if err == nil && code != 0 {
		err = ui.ExitCode(code)
	}
	return err
}

// resolvConf is what the command sees as /etc/resolv.conf: the servers of the first network that names some. "": the host's file.
func resolvConf(attachments []*node.Attachment) string {
	for _, a := range attachments {
		if a.Result == nil || a.Result.Result == nil {
			continue
		}
		if text := sandbox.ResolvConf(a.Result.Result.DNS); text != "" {
			return text
		}
	}
	return ""
}
