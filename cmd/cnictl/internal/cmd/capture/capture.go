// Package capture shows a container's packets, or writes them to a file.
package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/capture"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/container"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/sandbox"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// captureFlags say what is captured and where to.
type captureFlags struct {
	node.Options
	file, ifName         string
	hostEnd              bool
	count, bytes         int
	limit                time.Duration
	addresses, protocols []string
	ports                []uint
}

func New() *cobra.Command {
	f := &captureFlags{}
	cmd := &cobra.Command{
		Use:   "capture NAME",
		Short: "See a container's packets",
		Long: `Print a line for each packet of a container's interface, or write the packets to
a file that Wireshark and tcpdump read (pcapng). NAME is what exec takes, or a link
of the host. "in" is what comes in by the interface, "out" what leaves by it.

Packets can be chosen by address, port and protocol: one of each kind that is given
has to fit. It ends with Ctrl-C, after --count packets, or after --for.
`,
		Example: `  cnictl capture 10.88.0.7
  cnictl capture web --protocol tcp --port 443 --port 80 -w web.pcapng
  cnictl capture web --host-end --for 10s
  cnictl capture web -w - | wireshark -k -i -`,
		Args:              ui.Arguments(1, 1),
		ValidArgsFunction: ui.CompleteNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &f.Options)
	ui.AddJSONFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "write", "w", "", "write the packets to a file; - is standard output")
	flags.StringVarP(&f.ifName, "ifname", "i", "", "the container's interface, if it has several")
	ui.Complete(cmd, "ifname", ui.CompleteInterfaces)
	flags.BoolVar(&f.hostEnd, "host-end", false, "on the host's end of the container's veth pair")
	flags.IntVarP(&f.count, "count", "c", 0, "end after so many packets")
	flags.DurationVar(&f.limit, "for", 0, "end after this time")
	flags.IntVar(&f.bytes, "bytes", 0, "keep so many bytes of each packet (default: all)")
	flags.StringArrayVar(&f.addresses, "address", nil, "of the sender or receiver; repeatable")
	flags.UintSliceVar(&f.ports, "port", nil, "of the sender or receiver; repeatable")
	flags.StringSliceVar(&f.protocols, "protocol", nil, "arp, icmp, tcp, udp or sctp; repeatable")
	return cmd
}

func (f *captureFlags) run(cmd *cobra.Command, name string) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	program, err := filter.Compile()
	if err != nil {
		return ui.Usagef("there is too much to choose packets by: %w", err)
	}
	at, err := f.find(cmd, name)
	if err != nil {
		return err
	}
	var s *capture.Socket
	open := func() (err error) {
		s, err = capture.Listen(at.link.Attrs().Index, program, f.bytes)
		return err
	}
	if err := at.inside(open); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	defer s.Close()
	sink, err := f.sink(cmd, at)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "capturing on %s, until Ctrl-C\n", at)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	go func() {
		var end <-chan time.Time
		if f.limit > 0 {
			end = time.After(f.limit)
		}
		select {
		case <-signals:
		case <-end:
		}
		_ = s.Stop()
	}()
	written, err := copyPackets(s, sink, f.count)
	if gone := errors.Is(err, syscall.ENETDOWN); gone {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s went down or is gone\n", at)
		err = nil
	}
	err = errors.Join(err, s.Count(), sink.Close())
	fmt.Fprintf(cmd.ErrOrStderr(), "%s, %d dropped\n", ui.Counted(written, "packet"), s.Dropped)
	return err
}

// copyPackets hands packets over until there are no more, or enough.
func copyPackets(s *capture.Socket, to sink, count int) (written int, err error) {
	for count == 0 || written < count {
		f, err := s.Next()
		if errors.Is(err, capture.ErrStopped) {
			return written, nil
		}
		if err == nil {
			err = to.Write(f)
		}
		if err != nil {
			return written, err
		}
		written++
	}
	return written, nil
}

func (f *captureFlags) filter() (chosen capture.Filter, err error) {
	for _, text := range f.addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return chosen, ui.Usagef("--address: %w", err)
		}
		chosen.Addresses = append(chosen.Addresses, a.Unmap())
	}
	for _, port := range f.ports {
		if port == 0 || port > 65535 {
			return chosen, ui.Usagef("--port %d is no port from 1 to 65535", port)
		}
		chosen.Ports = append(chosen.Ports, uint16(port))
	}
	for _, name := range f.protocols {
		i := slices.IndexFunc(capture.AllProtocols, func(p capture.Protocol) bool { return p.Name == strings.ToLower(name) })
		if i < 0 {
			return chosen, ui.Usagef("--protocol %s is not arp, icmp, tcp, udp or sctp", name)
		}
		chosen.Protocols = append(chosen.Protocols, capture.AllProtocols[i])
	}
	return chosen, nil
}

// spot is where packets are captured.
type spot struct {
	link  netlink.Link
	netns string // "": the host's
	whose string
}

func (s *spot) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", ui.Harmless(s.link.Attrs().Name), s.whose))
}

// inside runs a function where the link is.
func (s *spot) inside(do func() error) error {
	if s.netns == "" {
		return do()
	}
	return sandbox.Inside(s.netns, do)
}

// find returns the interface that a name means.
func (f *captureFlags) find(cmd *cobra.Command, name string) (*spot, error) {
	c, err := container.Find(cmd.Context(), f.Options, name)
	if err != nil {
		if link, err := netlink.LinkByName(name); err == nil {
			return &spot{link: link, whose: "of the host"}, nil
		}
		return nil, err
	}
	s, ifName := &spot{netns: c.Netns, whose: "in " + c.Netns}, f.ifName
	if c.Attachments != nil {
		a, err := one(c.Attachments, ifName)
		if err != nil {
			return nil, err
		}
		s.whose, ifName = "of "+ui.Harmless(a.Owner), a.IfName
		if f.hostEnd && a.HostEnd == nil {
			return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "capture without --host-end", "%s has no host end of a veth pair", ui.Harmless(a.Owner))
		}
		if f.hostEnd {
			s.netns, s.link, s.whose = "", a.HostEnd.Link, "(host end) "+s.whose
			return s, nil
		}
	}
	if ifName == "" {
		ifName = "eth0"
	}
	err = s.inside(func() (err error) {
		s.link, err = netlink.LinkByName(ifName)
		if err == nil && s.link.Attrs().Name != ifName {
			err = fmt.Errorf("there is none, and %s has that as a second name", ui.Harmless(s.link.Attrs().Name)) // which the container gave it
		}
		return err
	})
	if err != nil {
		return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "name another with -i; cnictl exec "+name+" -- ip link lists them", "look for %s %s: %w", ui.Harmless(ifName), s.whose, err)
	}
	return s, nil
}

// one returns the attachment whose interface is meant.
func one(list []*node.Attachment, ifName string) (*node.Attachment, error) {
	var fit []*node.Attachment
	for _, a := range list {
		if ifName == "" || a.IfName == ifName {
			fit = append(fit, a)
		}
	}
	switch len(fit) {
	case 0:
		return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "name one of these with -i", "there is no interface %s, only %s", ifName, container.Owners(list))
	case 1:
		return fit[0], nil
	}
	return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "name the interface with -i", "there is more than one interface: %s", container.Owners(fit))
}
