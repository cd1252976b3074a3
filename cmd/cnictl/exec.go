package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/sandbox"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

func newExec() *cobra.Command {
	o := node.Options{Plugins: known.Plugins, BinDirs: filepath.SplitList(binDirs())}
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
		Args:              arguments(2, 1<<20),
		ValidArgsFunction: completeNames,
	}
	addLookFlags(cmd, &o)
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		command := args[1:]
		if command[0] == "--" {
			command = command[1:]
		}
		if len(command) == 0 {
			return usagef("an argument is missing: %s", cmd.UseLine())
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
	c, err := findContainer(cmd.Context(), o, name)
	if err != nil {
		return err
	}
	command := exec.Command(path, args[1:]...)
	command.Args[0] = args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	signals, stop := sandbox.Signals()
	defer stop()
	if err := sandbox.Start(command, c.netns, c.resolvConf()); err != nil {
		return fmt.Errorf("run %s in the network of %s: %w", args[0], name, err)
	}
	code, err := sandbox.Wait(command, signals)
	if err == nil && code != 0 {
		err = commandError{code}
	}
	return err
}

// container is one that a name means.
type container struct {
	netns       string             // path of its network namespace
	attachments []*node.Attachment // that the name means, of which all are in there; none if it is a namespace that nobody attached
}

// findContainer returns the container that a name means.
func findContainer(ctx context.Context, o node.Options, name string) (*container, error) {
	n := node.Read(ctx, o)
	var alive, all []*node.Attachment
	for _, m := range n.Find(name) {
		all = append(all, m.Attachment)
		if !m.Attachment.State.IsOver() && m.Attachment.Namespace != nil {
			alive = append(alive, m.Attachment)
		}
	}
	for _, a := range alive {
		if a.Namespace != alive[0].Namespace {
			return nil, plugin.Errorf("name one of them, by its container's id, for example", "%s may be any of %s", name, owners(alive))
		}
	}
	switch {
	case alive != nil:
		return &container{alive[0].Namespace.Path(), alive}, nil
	case all != nil:
		return nil, plugin.Errorf("cnictl gc frees what is left over of it", "%s has no network namespace any more: %s", owners(all), all[0].Why)
	}
	if i := slices.IndexFunc(n.Namespaces, func(s *node.Namespace) bool { return s.Is(name) }); i >= 0 {
		return &container{netns: n.Namespaces[i].Path()}, nil
	}
	if strings.Contains(name, "/") {
		return &container{netns: name}, nil // a path that is not mounted where we look
	}
	if _, err := lookup.Find(n, name); err != nil {
		return nil, err
	}
	return nil, plugin.Errorf("cnictl show lists containers", "%s is no container and no namespace", name)
}

func owners(list []*node.Attachment) string {
	var names []string
	for _, a := range list {
		names = append(names, harmless(a.Owner))
	}
	return strings.Join(names, ", ")
}

// resolvConf is what the command sees as /etc/resolv.conf: the servers of the first network that names some. "": the host's file.
func (c *container) resolvConf() string {
	for _, a := range c.attachments {
		if a.Result == nil || a.Result.Result == nil {
			continue
		}
		if text := sandbox.ResolvConf(a.Result.Result.DNS); text != "" {
			return text
		}
	}
	return ""
}
