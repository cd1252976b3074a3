package newnet

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
)

// newFlags are what somebody wants to have, as flags say it.
type newFlags struct {
	Options
	runtime                   string
	subnets, ranges, gateways []string
	limit                     string
	yes, dryRun               bool
}

// add gives the command of a kind the flags that make sense for it.
func (f *newFlags) add(cmd *cobra.Command, kind Kind) {
	flags := cmd.Flags()
	flags.StringVar(&f.runtime, "for", "", "write for a runtime, where its own configuration says: "+strings.Join(runtimes.Names(), ", "))
	flags.StringVar(&f.ConfDir, "conf-dir", "", "directory of networks (default that of the runtime, or $NETCONFPATH, or "+node.DefaultConfDir+")")
	flags.BoolVar(&f.First, "first", false, "make it the first file by name, which containerd and CRI-O take for all pods")
	flags.BoolVarP(&f.yes, "yes", "y", false, "write the file without asking")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the file on standard output, and write nothing")
	ui.AddJSONFlag(cmd)
	ui.Complete(cmd, "for", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return runtimes.Names(), cobra.ShellCompDirectiveNoFileComp
	})
	if kind.Subnet || kind.LAN {
		flags.StringSliceVar(&f.subnets, "subnet", nil, "the subnet of the containers, such as 10.112.0.0/24; repeatable, for IPv4 and IPv6")
	}
	if kind.Subnet {
		flags.BoolVar(&f.IPv6, "ipv6", false, "an IPv6 subnet, too")
	}
	if kind.LAN {
		flags.StringSliceVar(&f.ranges, "range", nil, "addresses of the LAN that nobody else has, FIRST-LAST; repeatable")
		flags.StringSliceVar(&f.gateways, "gateway", nil, "the LAN's router, to which containers have their default route; repeatable, for IPv4 and IPv6")
		if !row(kind.Name).Facts(nil).SharesMAC {
			flags.BoolVar(&f.DHCP, dhcp, false, "addresses from the LAN's DHCP server")
		}
		if row(kind.Name).Reads("device") {
			flags.StringVar(&f.Master, "device", "", "the network card that the container gets")
		} else {
			flags.StringVar(&f.Master, "master", "", "the host's link to the LAN (default that of the default route)")
		}
	}
	if row(kind.Name).Reads("vlanId") {
		flags.IntVar(&f.VLAN, vlanWord, 0, "the number of the VLAN, 1 to 4094")
	}
	if row(kind.Name).Facts(nil).Bridge != "" {
		flags.StringVar(&f.Bridge, bridgeWord, "", "the bridge's name (default one that is free)")
		flags.BoolVar(&f.Isolated, "isolated", false, "containers can't reach each other")
	}
	if kind.Routed {
		flags.BoolVar(&f.NoPorts, "no-ports", false, "no published ports")
		flags.StringVar(&f.Domain, "names", "", "give containers names in this `domain`, such as dns.podman, that others on the network find them by")
		flags.StringSliceVar(&f.Allow, allowWord, nil, "what containers may reach, such as 10.20.0.0/16 or api.example.com:443; all else is closed; repeatable, none for nothing")
		flags.StringVar(&f.limit, "limit", "", "what each container may send and receive a second, such as 100mbit")
	}
}

const allowWord = "allow"

// read reads what flags say as texts.
func (f *newFlags) read() (err error) {
	if f.Closed = len(f.Allow) > 0; slices.Equal(f.Allow, []string{"none"}) {
		f.Allow = nil
	}
	for _, text := range f.Allow {
		if _, err := reach.Parse(text); err != nil {
			return ui.Usagef("--%s %s: %v", allowWord, text, err)
		}
	}
	for _, text := range f.subnets {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return ui.Usagef("--subnet %s: write a subnet, such as 10.112.0.0/24", text)
		}
		f.Subnets = append(f.Subnets, p)
	}
	for _, text := range f.ranges {
		r, err := ParseRange(text)
		if err != nil {
			return err
		}
		f.Ranges = append(f.Ranges, r)
	}
	for _, text := range f.gateways {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return ui.Usagef("--gateway %s: write an address, such as 192.0.2.254", text)
		}
		f.Gateways = append(f.Gateways, a)
	}
	if f.Domain != "" {
		if err := names.Validate(f.Domain); err != nil {
			return ui.Usagef("--names %s: %v; write a domain, such as dns.podman", f.Domain, err)
		}
	}
	if f.limit != "" {
		f.Limit, err = ParseRate(f.limit)
	}
	return err
}
