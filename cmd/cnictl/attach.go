package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
)

// attachment is what del and check print with --json.
type attachment struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
	Netns       string `json:"netns,omitempty"`
	Status      string `json:"status"` // deleted or ok
}

func (a attachment) print(cmd *cobra.Command) {
	if wantsJSON(cmd) {
		printJSON(cmd.OutOrStdout(), a)
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s of %s on network %s: %s\n", a.IfName, a.ContainerID, a.Network, a.Status)
}

func newAdd() *cobra.Command {
	var f attachmentFlags
	cmd := &cobra.Command{
		Use:   "add NETWORK [NETNS]",
		Short: "Attach a network namespace to a network (CNI ADD)",
		Long: `Attach a network namespace to a network, and print what came of it; with --json
the result of the plugins as it is.

When it fails, what some plugins of the network have done already may still be
there: cnictl del with the same arguments removes it.
` + environment,
		Example: `  ip netns add web
  cnictl add demo /run/netns/web
  cnictl add demo /run/netns/web -p 8080:80 -p '[::1]:5353:53/udp' --json`,
		Args: arguments(1, 2),
	}
	f.add(cmd)
	f.addNamespace(cmd)
	addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return add(cmd, &f, args) }
	return cmd
}

func add(cmd *cobra.Command, f *attachmentFlags, args []string) error {
	p, err := f.parameters(args)
	if err != nil {
		return err
	}
	if p.Netns == "" {
		return usagef("the namespace is missing: give its path as NETNS, such as /run/netns/web (ip netns add web)")
	}
	rt, err := p.RuntimeConf()
	if err != nil {
		return usageError{err}
	}
	node := f.node(cmd)
	list, err := node.Load(args[0])
	if err != nil {
		return err
	}
	if err := publishable(list, f.publish); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := node.CNI().AddNetworkList(ctx, list, rt)
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		printJSON(cmd.OutOrStdout(), result)
		return nil
	}
	return describe(cmd.OutOrStdout(), list.Name, rt, result)
}

// publishable refuses ports that would be dropped without a word.
func publishable(list *libcni.NetworkConfigList, publish []string) error {
	if len(publish) == 0 {
		return nil
	}
	return network.RequirePublisher(list)
}

func newDel() *cobra.Command {
	var f attachmentFlags
	cmd := &cobra.Command{
		Use:   "del NETWORK [NETNS]",
		Short: "Detach a network namespace from a network (CNI DEL)",
		Long: `Detach a network namespace from a network. It is no error if it is not attached
or the namespace is gone. What is not given is taken from what was kept of the
add, the network too if its file is gone.
` + environment,
		Example: `  cnictl del demo /run/netns/web
  cnictl del demo --id 3f2a9c`,
		Args: arguments(1, 2),
	}
	f.add(cmd)
	f.addNamespace(cmd)
	addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node := f.node(cmd)
		rt, err := existing(node, &f, args)
		if err != nil {
			return err
		}
		list, err := node.LoadForDel(args[0], rt)
		if err != nil {
			return err
		}
		// A plugin that is at work when cnictl is interrupted finishes.
		if err := node.CNI().DelNetworkList(cmd.Context(), list, rt); err != nil {
			return err
		}
		attachment{list.Name, rt.ContainerID, rt.IfName, rt.NetNS, "deleted"}.print(cmd)
		return nil
	}
	return cmd
}

func newCheck() *cobra.Command {
	var f attachmentFlags
	cmd := &cobra.Command{
		Use:   "check NETWORK [NETNS]",
		Short: "Check that an attachment is as it was made (CNI CHECK)",
		Long: `Check that an attachment is still as it was made. What is not given is taken
from what was kept of the add.
` + environment,
		Example: "  cnictl check demo /run/netns/web",
		Args:    arguments(1, 2),
	}
	f.add(cmd)
	f.addNamespace(cmd)
	addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node := f.node(cmd)
		rt, err := existing(node, &f, args)
		if err != nil {
			return err
		}
		list, err := node.Load(args[0])
		if err != nil {
			return err
		}
		if err := check(cmd, node, list, rt); err != nil {
			return err
		}
		attachment{list.Name, rt.ContainerID, rt.IfName, rt.NetNS, "ok"}.print(cmd)
		return nil
	}
	return cmd
}

func check(cmd *cobra.Command, node network.Node, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	if list.DisableCheck {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has disableCheck: no plugin is asked\n", list.Name)
	}
	err := node.CNI().CheckNetworkList(cmd.Context(), list, rt)
	if errors.Is(err, libcni.ErrorCheckNotSupp) {
		return fmt.Errorf("network %s: %w; it needs 0.4.0 or newer", list.Name, err)
	}
	return err
}

// existing returns the parameters of an attachment that was made before.
func existing(node network.Node, f *attachmentFlags, args []string) (*libcni.RuntimeConf, error) {
	p, err := f.parameters(args)
	if err != nil {
		return nil, err
	}
	rt, err := p.RuntimeConf()
	if err != nil {
		return nil, usageError{err}
	}
	return rt, node.Complete(args[0], rt)
}
