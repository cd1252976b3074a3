// Package attachment is what the commands about one attachment share: add, del, check and run.
package attachment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/netns"
)

// environment says which variables these commands read besides those of all, and are those of cnitool, too.
const environment = `
Also CNI_IFNAME, and for the plugins CNI_ARGS (KEY=VALUE;KEY=VALUE) and CAP_ARGS
(JSON: capability to value).`

// Flags are the flags and the environment of the commands about one attachment.
type Flags struct {
	network.Node
	network.Parameters
	DryRun bool // of add and del
}

// Add gives a command these flags.
func (f *Flags) Add(cmd *cobra.Command) {
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &f.Node.Options)
	cmd.Long += environment
	f.Args, f.CapArgs = os.Getenv("CNI_ARGS"), os.Getenv("CAP_ARGS")
	flags := cmd.Flags()
	flags.StringVarP(&f.IfName, "ifname", "i", cmp.Or(os.Getenv("CNI_IFNAME"), "eth0"), "the interface's name in the container")
	flags.StringArrayVarP(&f.Publish, "publish", "p", nil, "publish a port, [hostIP:]hostPort:containerPort[/tcp|udp|sctp]; repeatable")
}

// LoadToAdd returns the network, and refuses one that would drop the ports to publish without a word.
func (f *Flags) LoadToAdd(name string) (*libcni.NetworkConfigList, error) {
	list, err := f.Load(name)
	if err == nil && f.Publish != nil {
		err = network.RequirePublisher(list)
	}
	return list, err
}

// Command completes a command about one attachment, NETWORK [NETNS].
func Command(cmd *cobra.Command, do func(cmd *cobra.Command, f *Flags, network string, rt *libcni.RuntimeConf) error) *cobra.Command {
	var f Flags
	f.Add(cmd)
	ui.AddJSONFlag(cmd)
	cmd.Flags().StringVar(&f.Netns, "netns", "", "path of the container's network namespace, if not given as NETNS")
	cmd.Flags().StringVar(&f.ID, "id", "", "container id (default: cnitool's, made from the path of the namespace)")
	if cmd.Name() != "check" {
		ui.AddDryRunFlag(cmd, &f.DryRun)
	}
	cmd.Args = ui.Arguments(1, 2)
	cmd.ValidArgsFunction = ui.CompleteAttachment
	ui.Complete(cmd, "id", ui.CompleteIDs)
	ui.Complete(cmd, "ifname", ui.CompleteInterfaces)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 {
			if f.Netns != "" && !netns.Same(f.Netns, args[1]) {
				return ui.Usagef("two namespaces are given: %s and --netns %s", args[1], f.Netns)
			}
			f.Netns = args[1]
		}
		rt, err := f.RuntimeConf()
		if err != nil {
			return ui.Usagef("%w", err)
		}
		return do(cmd, &f, args[0], rt)
	}
	return cmd
}

// attachment is what del and check print with --json, and add with --dry-run.
type attachment struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
	Netns       string `json:"netns,omitempty"`
	Status      string `json:"status"` // deleted or ok, or what it would be
}

// PrintStatus prints what became of an attachment.
func PrintStatus(cmd *cobra.Command, network string, rt *libcni.RuntimeConf, status string) error {
	a := attachment{network, rt.ContainerID, rt.IfName, rt.NetNS, status}
	return ui.Output(cmd, a, func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s on network %s: %s\n", a.IfName, a.ContainerID, a.Network, a.Status)
	})
}

// Describe prints an attachment for people.
func Describe(w io.Writer, name string, rt *libcni.RuntimeConf, r *types100.Result) {
	fmt.Fprintf(w, "attached %s to network %s as %s\n", rt.NetNS, name, rt.IfName)
	fmt.Fprintf(w, "  container id  %s\n", rt.ContainerID)
	for _, i := range r.Interfaces {
		where := "host"
		if i.Sandbox != "" {
			where = "container"
		}
		fmt.Fprintf(w, "  interface     %s (%s) %s\n", i.Name, where, i.Mac)
	}
	for _, ip := range r.IPs {
		gateway := ""
		if ip.Gateway != nil {
			gateway = ", gateway " + ip.Gateway.String()
		}
		fmt.Fprintf(w, "  address       %s%s\n", ip.Address.String(), gateway)
	}
	for _, route := range r.Routes {
		via := ""
		if route.GW != nil {
			via = " via " + route.GW.String()
		}
		fmt.Fprintf(w, "  route         %s%s\n", route.Dst.String(), via)
	}
	for _, server := range r.DNS.Nameservers {
		fmt.Fprintf(w, "  name server   %s\n", server)
	}
	// The port maps that the plugins were given, from whatever they were made.
	var ports []network.Port
	if text, err := json.Marshal(rt.CapabilityArgs["portMappings"]); err == nil && json.Unmarshal(text, &ports) == nil {
		for _, p := range ports {
			fmt.Fprintf(w, "  published     %s\n", p)
		}
	}
}
