package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/sandbox"
)

// delLimit is how long the DEL at the end may take.
const delLimit = 2 * time.Minute

func newRun() *cobra.Command {
	var (
		f     attachmentFlags
		net   string
		quiet bool
	)
	cmd := &cobra.Command{
		Use:   "run --net NETWORK [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a network namespace of its own",
		Long: `Make a network namespace, attach it to a network, run a command in it, and take
all of it away when the command ends: also when it is killed, when cnictl is told
to end (SIGTERM, SIGINT, SIGHUP and so on are passed on to the command), and when
attaching fails. Only a SIGKILL leaves something: ip netns del and cnictl gc
remove it.

Only the network is the command's own. If the network names DNS servers, it sees
them in /etc/resolv.conf. Meanwhile "ip netns exec ID ..." gets one inside.

The exit code is that of the command, or 128 + N if signal N ended it.
` + environment,
		Example: `  cnictl run --net demo -p 8080:80 -- busybox httpd -f -p 80
  cnictl run --net demo --id shell -- bash`,
		Args: arguments(1, 1<<20),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&net, "net", "", "the network to attach to")
	flags.StringVar(&f.id, "id", "", "container id, and name of the namespace in "+sandbox.Dir+" (default: a new one)")
	flags.BoolVarP(&quiet, "quiet", "q", false, "do not say on standard error what was made")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if net == "" {
			return usagef("--net is missing: name the network to attach to")
		}
		return run(cmd, &f, net, quiet, args)
	}
	return cmd
}

// session is one run.
type session struct {
	node    network.Node
	list    *libcni.NetworkConfigList
	rt      *libcni.RuntimeConf
	signals <-chan os.Signal
}

func run(cmd *cobra.Command, f *attachmentFlags, net string, quiet bool, args []string) (err error) {
	command, err := newCommand(cmd, args)
	if err != nil {
		return err
	}
	if f.id == "" {
		f.id = newID()
	}
	p, err := f.parameters(nil)
	if err != nil {
		return err
	}
	rt, err := p.RuntimeConf()
	if err != nil {
		return usageError{err}
	}
	s := &session{node: f.node(cmd), rt: rt}
	if s.list, err = s.node.Load(net); err != nil {
		return err
	}
	if err := publishable(s.list, f.publish); err != nil {
		return err
	}
	if err := s.requireNew(); err != nil {
		return err
	}

	signals, stop := sandbox.Signals()
	defer stop()
	s.signals = signals
	ns, err := sandbox.New(f.id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Remove()) }()
	s.rt.NetNS = ns.Path()
	defer func() { err = errors.Join(err, s.del()) }()
	result, err := s.add(cmd.Context())
	if err != nil {
		return err
	}
	if !quiet {
		if err := describe(cmd.ErrOrStderr(), s.list.Name, s.rt, result); err != nil {
			return err
		}
	}
	return s.perform(ns, command, result)
}

// newCommand prepares the command, and fails before anything is made for one
// that does not exist.
func newCommand(cmd *cobra.Command, args []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, fmt.Errorf("find the command to run: %w", err)
	}
	command := exec.Command(path, args[1:]...)
	command.Args[0] = args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	return command, nil
}

// newID makes a container id that nobody has.
func newID() string {
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	return "cnictl-" + hex.EncodeToString(id)
}

// requireNew refuses the id of another container, whose attachment our DEL
// would take away.
func (s *session) requireNew() error {
	known, err := s.node.Attachments(s.list.Name)
	if err != nil {
		return err
	}
	for _, a := range known {
		if a.ContainerID == s.rt.ContainerID {
			return fmt.Errorf("container %s is attached to network %s already; choose another --id, or detach it: cnictl del %s --id %s --ifname %s",
				a.ContainerID, a.Network, a.Network, a.ContainerID, a.IfName)
		}
	}
	return nil
}

// add attaches the namespace. A signal ends it.
func (s *session) add(ctx context.Context) (types.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	added := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case signal := <-s.signals:
			cancel(fmt.Errorf("stopped by signal %v", signal))
		case <-added:
		}
	}()
	result, err := s.node.CNI().AddNetworkList(ctx, s.list, s.rt)
	close(added)
	<-watched
	if stopped := context.Cause(ctx); stopped != nil {
		return nil, errors.Join(stopped, err)
	}
	return result, err
}

// del detaches the namespace, whatever has become of it.
func (s *session) del() error {
	ctx, cancel := context.WithTimeout(context.Background(), delLimit)
	defer cancel()
	if err := s.node.CNI().DelNetworkList(ctx, s.list, s.rt); err != nil {
		return fmt.Errorf("take the attachment away (repeat with: cnictl del %s --id %s --ifname %s): %w",
			s.list.Name, s.rt.ContainerID, s.rt.IfName, err)
	}
	return nil
}

// perform runs the command, and returns a commandError if it does not end
// well.
func (s *session) perform(ns *sandbox.Namespace, command *exec.Cmd, result types.Result) error {
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return err
	}
	if err := ns.Start(command, sandbox.ResolvConf(r.DNS)); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	code, err := sandbox.Wait(command, s.signals)
	if err != nil {
		return err
	}
	if code != 0 {
		return commandError{code}
	}
	return nil
}
