package show

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

func newShowPorts() *cobra.Command {
	f := &showFlags{}
	cmd := &cobra.Command{
		Use:   "ports",
		Short: "Show the published ports of this node, and where they lead",
		Long: `Show the ports that containers publish on this node, and where they lead. Of a
port that only the packet filter knows, the container's port is not known.
`,
		Example: "  cnictl show ports",
		Args:    ui.Arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, f.ports) },
	}
	f.add(cmd)
	f.addState(cmd)
	addSort(cmd, f, portColumns)
	return cmd
}

// shownPorts is what `show ports` prints.
type shownPorts struct {
	Ports  []publishedPort `json:"ports"`
	Unread []node.Unread   `json:"unread"`
}

// publishedPort is a port with the attachment that has it.
type publishedPort struct {
	node.Port
	Address     string     `json:"address"` // of the container
	Network     string     `json:"network"`
	ContainerID string     `json:"containerID"`
	IfName      string     `json:"ifname"`
	Pod         string     `json:"pod,omitempty"`
	State       node.State `json:"state"`

	of *node.Attachment
}

func (f *showFlags) ports(n *node.Node) (shown, error) {
	s := &shownPorts{[]publishedPort{}, f.unread(n)}
	for _, a := range f.chosen(n) {
		for _, p := range a.Ports {
			s.Ports = append(s.Ports, publishedPort{p, targetOf(a, p), a.Network, a.ContainerID, a.IfName, a.Pod, a.State, a})
		}
	}
	slices.SortStableFunc(s.Ports, func(a, b publishedPort) int {
		return cmp.Or(cmp.Compare(a.HostPort, b.HostPort), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.HostIP, b.HostIP))
	})
	sortRows(s.Ports, portColumns, f.sort)
	return s, nil
}

// targetOf returns the address of the container to which a port leads: one of the family of the host's address, if that is given.
func targetOf(a *node.Attachment, p node.Port) string {
	host, _ := netip.ParseAddr(p.HostIP)
	for _, address := range a.Addresses {
		if !host.IsValid() || host.Is4() == address.Addr().Is4() {
			return address.Addr().String()
		}
	}
	return ""
}

func (s *shownPorts) print(w io.Writer, _ *showFlags) {
	if len(s.Ports) == 0 {
		fmt.Fprintln(w, "no ports are published")
		return
	}
	var of []*node.Attachment
	for _, p := range s.Ports {
		of = append(of, p.of)
	}
	short := ui.ShortIDs(of)
	g := ui.NewGrid("HOST-IP", "PORT", "PROTO", "", "LEADS TO", "CONTAINER", "NETWORK", "STATE")
	g.AlignRight(2)
	for _, p := range s.Ports {
		to := cmp.Or(p.Address, "?") + ":?"
		if address, err := netip.ParseAddr(p.Address); err == nil && p.ContainerPort != 0 {
			to = netip.AddrPortFrom(address, uint16(p.ContainerPort)).String()
		}
		name := cmp.Or(p.Pod, short[p.ContainerID], p.of.Owner)
		g.Add(ui.Harmless(cmp.Or(p.HostIP, "*")), fmt.Sprint(p.HostPort), ui.Harmless(p.Protocol), "->", to, ui.Harmless(name), ui.Harmless(p.Network), colourOf(p.State).Sprint(p.State))
	}
	g.Print(w)
}
