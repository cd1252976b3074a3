package main

import (
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// attachmentCommand completes a command about one attachment, NETWORK [NETNS].
func attachmentCommand(cmd *cobra.Command, do func(cmd *cobra.Command, f *attachmentFlags, network string, rt *libcni.RuntimeConf) error) *cobra.Command {
	var f attachmentFlags
	f.add(cmd)
	addJSONFlag(cmd)
	cmd.Flags().StringVar(&f.Netns, "netns", "", "path of the container's network namespace, if not given as NETNS")
	cmd.Flags().StringVar(&f.ID, "id", "", "container id (default: cnitool's, made from the path of the namespace)")
	cmd.Args = arguments(1, 2)
	cmd.ValidArgsFunction = completeAttachment
	complete(cmd, "id", completeIDs)
	complete(cmd, "ifname", completeInterfaces)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 {
			if f.Netns != "" && !netns.Same(f.Netns, args[1]) {
				return usagef("two namespaces are given: %s and --netns %s", args[1], f.Netns)
			}
			f.Netns = args[1]
		}
		rt, err := f.RuntimeConf()
		if err != nil {
			return usageError{err}
		}
		return do(cmd, &f, args[0], rt)
	}
	return cmd
}

func newAdd() *cobra.Command {
	return attachmentCommand(&cobra.Command{
		Use:   "add NETWORK [NETNS]",
		Short: "Attach a network namespace to a network (CNI ADD)",
		Long: `Attach a network namespace to a network, and print what came of it; with --json
the result of the plugins as it is.

When it fails, what some plugins of the network have done already may still be
there: cnictl del with the same arguments removes it.
`,
		Example: `  ip netns add web
  cnictl add demo /run/netns/web
  cnictl add demo /run/netns/web -p 8080:80 -p '[::1]:5353:53/udp' --json`,
	}, func(cmd *cobra.Command, f *attachmentFlags, network string, rt *libcni.RuntimeConf) error {
		if rt.NetNS == "" {
			return usagef("the namespace is missing: give its path as NETNS, such as /run/netns/web (ip netns add web)")
		}
		list, err := f.loadToAdd(network)
		if err == nil {
			err = f.CheckResult(network, rt)
		}
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		result, err := f.CNI().AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		r, err := types100.NewResultFromResult(result)
		if err != nil {
			return fmt.Errorf("read the result of network %s: %w", list.Name, err)
		}
		return output(cmd, result, func(w io.Writer) { describe(w, list.Name, rt, r) })
	})
}

func newDel() *cobra.Command {
	return attachmentCommand(&cobra.Command{
		Use:   "del NETWORK [NETNS]",
		Short: "Detach a network namespace from a network (CNI DEL)",
		Long: `Detach a network namespace from a network. It is no error if it is not attached
or the namespace is gone. What is not given is taken from what was kept of the
add, the network too if its file is gone. If a plugin is missing or fails, the
others do their part all the same, and it is said which one did not.
`,
		Example: `  cnictl del demo /run/netns/web
  cnictl del demo --id 3f2a9c`,
	}, func(cmd *cobra.Command, f *attachmentFlags, network string, rt *libcni.RuntimeConf) error {
		kept, err := f.Complete(network, rt)
		if err != nil {
			return err
		}
		list, err := f.Load(network)
		if err != nil && kept != nil {
			list, err = libcni.NetworkConfFromBytes(kept)
		}
		if err != nil {
			return err
		}
		// A plugin that is at work when cnictl is interrupted finishes.
		if err := f.Del(cmd.Context(), list, rt); err != nil {
			return plugin.Errorf("what the other plugins had made is removed; correct that one, and repeat this",
				"not all of %s of %s on network %s is deleted: %w", rt.IfName, rt.ContainerID, list.Name, err)
		}
		return printStatus(cmd, list.Name, rt, "deleted")
	})
}

func newCheck() *cobra.Command {
	return attachmentCommand(&cobra.Command{
		Use:   "check NETWORK [NETNS]",
		Short: "Check that an attachment is as it was made (CNI CHECK)",
		Long: `Check that an attachment is still as it was made. What is not given is taken
from what was kept of the add.
`,
		Example: "  cnictl check demo /run/netns/web",
	}, func(cmd *cobra.Command, f *attachmentFlags, network string, rt *libcni.RuntimeConf) error {
		if _, err := f.Complete(network, rt); err != nil {
			return err
		}
		list, err := f.Load(network)
		if err != nil {
			return err
		}
		if list.DisableCheck {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: network %s has disableCheck: no plugin is asked\n", list.Name)
		}
		err = f.CNI().CheckNetworkList(cmd.Context(), list, rt)
		if errors.Is(err, libcni.ErrorCheckNotSupp) {
			return fmt.Errorf("network %s: %w; it needs 0.4.0 or newer", list.Name, err)
		}
		if err != nil {
			return err
		}
		return printStatus(cmd, list.Name, rt, "ok")
	})
}

// attachment is what del and check print with --json.
type attachment struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
	Netns       string `json:"netns,omitempty"`
	Status      string `json:"status"` // deleted or ok
}

func printStatus(cmd *cobra.Command, network string, rt *libcni.RuntimeConf, status string) error {
	a := attachment{network, rt.ContainerID, rt.IfName, rt.NetNS, status}
	return output(cmd, a, func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s on network %s: %s\n", a.IfName, a.ContainerID, a.Network, a.Status)
	})
}
