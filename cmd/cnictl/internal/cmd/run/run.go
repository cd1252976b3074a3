// Package run runs a command in a network namespace of its own, and takes all away when the command ends.
package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/attachment"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/sandbox"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
)

// delLimit is how long the DEL at the end may take.
const delLimit = 2 * time.Minute

func New() *cobra.Command {
	var (
		f     attachment.Flags
		net   string
		quiet bool
	)
	cmd := &cobra.Command{
		Use:   "run --network NETWORK [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a network namespace of its own",
		Long: `Make a network namespace, attach it to a network, run a command in it, and take
all of it away when the command ends: also when it is killed, when cnictl is told
to end (SIGTERM, SIGINT, SIGHUP and so on are passed on to the command), and when
attaching fails. Only a SIGKILL leaves something: ip netns del ID and cnictl del
NETWORK --id ID remove it.

Only the network is the command's own. If the network names DNS servers, it sees
them in /etc/resolv.conf. Meanwhile "ip netns exec ID ..." gets one inside.

The exit code is that of the command, or 128 + N if signal N ended it.
`,
		Example: `  cnictl run --network demo -p 8080:80 -- busybox httpd -f -p 80
  cnictl run --network demo --id shell -- bash`,
		Args: ui.Arguments(1, 1<<20),
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	ui.AddNetworkFlag(cmd, &net, "the network to attach to")
	flags.StringVar(&f.ID, "id", "", "container id, and name of the namespace in "+sandbox.Dir+" (default: a new one)")
	flags.BoolVarP(&quiet, "quiet", "q", false, "do not say on standard error what was made")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if net == "" {
			return ui.Usagef("--network is missing: name the network to attach to")
		}
		f.ID = cmp.Or(f.ID, "cnictl-"+strings.ToLower(rand.Text()[:12]))
		return run(cmd, &f, net, quiet, args)
	}
	return cmd
}

func run(cmd *cobra.Command, f *attachment.Flags, net string, quiet bool, args []string) (err error) {
	// All that can be refused is refused before anything is made.
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("find the command to run: %w", err)
	}
	command := exec.Command(path, args[1:]...)
	command.Args[0] = args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	rt, err := f.RuntimeConf()
	if err != nil {
		return ui.Usagef("%w", err)
	}
	list, err := f.LoadToAdd(net)
	if err == nil {
		err = f.RequireNew(cmd.Context(), list, f.ID)
	}
	if err != nil {
		return err
	}

	signals, stop := sandbox.Signals()
	defer stop()
	if rt.NetNS, err = sandbox.New(f.ID); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sandbox.Remove(f.ID)) }()
	defer func() { err = errors.Join(err, takeAway(f.Node, list, rt)) }()
	result, err := attach(cmd.Context(), f.Node, list, rt, signals)
	if err != nil {
		return err
	}
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return fmt.Errorf("read the result of network %s: %w", net, err)
	}
	if !quiet {
		attachment.Describe(cmd.ErrOrStderr(), net, rt, r)
	}
	if err := sandbox.Start(command, rt.NetNS, sandbox.ResolvConf(r.DNS)); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	code, err := sandbox.Wait(command, signals)
	if err == nil && code != 0 {
		err = ui.ExitCode(code)
	}
	return err
}

// attach attaches the namespace. A signal stops it.
func attach(ctx context.Context, node network.Node, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, signals <-chan os.Signal) (types.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var result types.Result
	var err error
	added := make(chan struct{})
	go func() {
		defer close(added)
		result, err = node.CNI().AddNetworkList(ctx, list, rt)
	}()
	select {
	case signal := <-signals:
		cancel(fmt.Errorf("stopped by signal %v", signal))
		<-added
	case <-added:
	}
	return result, errors.Join(context.Cause(ctx), err)
}

// takeAway detaches the namespace, whatever has become of it.
func takeAway(node network.Node, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	ctx, cancel := context.WithTimeout(context.Background(), delLimit)
	defer cancel()
	if err := node.Del(ctx, list, rt); err != nil {
		return fmt.Errorf("take the attachment away (repeat with: cnictl del %s --id %s --ifname %s): %w",
			list.Name, rt.ContainerID, rt.IfName, err)
	}
	return nil
}
