// Package probe finds out what works on a network: it attaches two containers of its own, has packets of every kind go between them, the
// host and the outside, and says of each that did not arrive where it was lost.
package probe

import (
	"fmt"
	"io"
	"net/netip"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
)

func New() *cobra.Command {
	var (
		node        network.Node
		o           Options
		to, servers []string
	)
	cmd := &cobra.Command{
		Use:   "probe NETWORK",
		Short: "Try with real packets what works on a network",
		Long: `Attach two containers of its own, a and b, to a network, have packets go between
them, to their gateway, to the outside (--to), to a port that is published for b, as
large as the link takes them, and to the name servers, and take both containers away
again. It takes some seconds, and what runs stays as it is.

For what does not work it says where the packet was lost, and why where that is easy
to know. The exit code is 1 if something does not work that should.
`,
		Example: `  cnictl probe demo
  cnictl probe demo --to 192.0.2.254 --to 192.0.2.254:443
  cnictl probe demo --dns 10.88.0.1 --name example.org`,
		Args:              ui.Arguments(1, 1),
		ValidArgsFunction: ui.CompleteNetworks,
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &node.Options)
	ui.AddJSONFlag(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&to, "to", nil, "an address outside to try, ADDRESS (by ping) or ADDRESS:PORT (by TCP); repeatable")
	flags.StringVar(&o.Name, "name", "", "a name that the name servers have to know")
	flags.StringSliceVar(&servers, "dns", nil, "name servers to ask in place of the network's")
	flags.DurationVar(&o.Timeout, "timeout", 2*time.Second, "how long to wait for an answer")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.Network = args[0]
		if o.Outside, err = parseTargets(to); err != nil {
			return err
		}
		for _, s := range servers {
			server, err := netip.ParseAddr(s)
			if err != nil {
				return ui.Usagef("--dns: %w", err)
			}
			o.Servers = append(o.Servers, server)
		}
		if err := CheckName(o.Name); err != nil {
			return ui.Usagef("--name: %w", err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
		defer stop()
		report, err := Run(ctx, node, o)
		if err != nil {
			return err
		}
		if err := ui.Output(cmd, report, func(w io.Writer) { describeProbe(w, report) }); err != nil {
			return err
		}
		if !report.Works {
			return ui.Failed
		}
		return nil
	}
	return cmd
}

// parseTargets reads addresses with a port or without.
func parseTargets(texts []string) (targets []netip.AddrPort, err error) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			targets = append(targets, netip.AddrPortFrom(a, 0))
			continue
		}
		to, err := netip.ParseAddrPort(text)
		if err != nil || to.Port() == 0 {
			return nil, ui.Usagef("--to %s: give ADDRESS or ADDRESS:PORT, such as 192.0.2.1:443 or [2001:db8::1]:443", text)
		}
		targets = append(targets, to)
	}
	return targets, nil
}

// describeProbe prints a row for each test with a column for each family, and notes below.
func describeProbe(w io.Writer, r *Report) {
	count := map[Outcome]int{}
	for _, t := range r.Tests {
		count[t.Outcome]++
	}
	verdict := ui.Good.Sprint("works")
	if !r.Works {
		verdict = ui.Bad.Sprint("does not work")
	}
	fmt.Fprintf(w, "network %s %s: %d ok, %d failed, %d not tried\n", ui.Harmless(r.Network), verdict, count[OK], count[Failed], count[NotTried])
	for _, c := range r.Containers {
		var addresses []string
		for _, a := range c.Addresses {
			addresses = append(addresses, a.String())
		}
		at := ""
		if c.HostEnd != "" {
			at = " at " + c.HostEnd
		}
		fmt.Fprintf(w, "%s is %s%s, MTU %d\n", c.Name, strings.Join(addresses, ", "), at, c.MTU)
	}
	var rows, families, notes []string
	cells := map[[2]string]string{}
	for _, t := range r.Tests {
		if !slices.Contains(rows, t.Name) {
			rows = append(rows, t.Name)
		}
		if !slices.Contains(families, t.Family) {
			families = append(families, t.Family)
		}
		text, note := describeTest(t)
		if note != "" {
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
			text += fmt.Sprintf(" [%d]", slices.Index(notes, note)+1)
		}
		cells[[2]string{t.Name, t.Family}] = text
	}
	fmt.Fprintln(w)
	g := ui.NewGrid(append([]string{"TEST"}, families...)...)
	for _, name := range rows {
		row := []string{name}
		for _, f := range families {
			row = append(row, cells[[2]string{name, f}])
		}
		g.Add(row...)
	}
	g.Print(w)
	for i, note := range notes {
		fmt.Fprintf(w, "\n[%d] %s", i+1, strings.ReplaceAll(note, "\n", "\n    "))
	}
	fmt.Fprintln(w)
}

// describeTest is a cell of the table, and a note on it.
func describeTest(t *Test) (cell, note string) {
	switch t.Outcome {
	case NotTried:
		return ui.Weak.Sprint("-"), t.Note
	case OK:
		cell = ui.Good.Sprint("ok")
		switch {
		case t.Bytes > 0:
			cell += fmt.Sprintf(" %d bytes", t.Bytes)
		case t.Took > 0:
			cell += fmt.Sprintf(" %.2f ms", t.Took)
		}
		return cell, t.Note
	}
	var lines []string
	for _, line := range []string{t.Lost.String(), t.Lost.Reason} {
		if line != "" {
			lines = append(lines, ui.Harmless(line))
		}
	}
	if t.Lost.Remedy != "" {
		lines = append(lines, "to do: "+t.Lost.Remedy)
	}
	return ui.Bad.Sprint("failed"), strings.Join(lines, "\n")
}
