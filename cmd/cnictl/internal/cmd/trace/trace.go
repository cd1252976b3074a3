// Package trace says which rule drops a packet, or what else does.
package trace

import (
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

func New() *cobra.Command {
	var o node.Options
	var a ask
	cmd := &cobra.Command{
		Use:   "trace [CONTAINER] --to WHERE",
		Short: "Follow one packet, and say which rule drops it",
		Long: `Send one real packet, follow it through the node, and say in a line each what
happens to it: the rules of the packet filter that it meets, by table, chain and
handle, the routes, the addresses that are changed. If it is lost, the first
cause stands at the end: what it is, whose it is, and what to do that harms
nobody.

WHERE is ADDRESS, ADDRESS:PORT[/tcp|udp], CONTAINER[:PORT[/tcp|udp]], or PORT[/tcp|udp],
which is a published port. Without a port it is a ping. The packet is sent by
CONTAINER, or by --from: another container, "node", or an address outside. Without
either it comes from outside: it is let in by the node's own link, and no answer to it
leaves the node.

Nothing stays behind. The exit code is 1 if the packet was not answered.
`,
		Example: `  cnictl trace web --to 192.0.2.254:443
  cnictl trace --to 8080
  cnictl trace --from node --to web:80`,
		Args:              ui.Arguments(0, 1),
		ValidArgsFunction: ui.CompleteNames,
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &o)
	ui.AddJSONFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&a.to, "to", "", "where the packet goes: an address, a container, a published port")
	flags.StringVar(&a.from, "from", "", `who sends it: a container, "node", or an address outside`)
	flags.StringVar(&a.link, "link", "", "the link by which it comes from outside, if not by the one that leads there")
	flags.IntVar(&a.size, "size", 0, "bytes of the whole packet, which nobody may fragment: for pings and UDP")
	flags.BoolVar(&a.watch, "watch", false, "send nothing, and follow the next packet that somebody sends")
	flags.DurationVar(&a.timeout, "timeout", 2*time.Second, "how long to wait for an answer")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if a.from != "" {
				return ui.Usagef("name who sends once: %s, or --from %s", args[0], a.from)
			}
			a.from = args[0]
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
		defer stop()
		request, err := a.request(ctx, o)
		if err != nil {
			return err
		}
		report, err := trace.Trace(ctx, *request)
		if err != nil {
			return err
		}
		if err := ui.Output(cmd, report, func(w io.Writer) { describe(w, report) }); err != nil {
			return err
		}
		if report.Cause != nil {
			return ui.Failed
		}
		return nil
	}
	return cmd
}

// describe prints the verdict, the steps, and the cause.
func describe(w io.Writer, r *trace.Report) {
	outcome := ui.Good.Sprint(r.Outcome)
	if r.Cause != nil {
		outcome = ui.Bad.Sprint(r.Outcome)
	}
	fmt.Fprintf(w, "%s: %s\n\n", ui.Harmless(r.Packet), outcome)
	g := ui.NewGrid("PACKET", "WHERE", "HOOK", "WHAT")
	way, at, hook := "", "", ""
	for _, s := range r.Steps {
		if s.Way != way {
			at, hook = "", ""
		}
		g.Add(unlessSame(s.Way, way), ui.Harmless(unlessSame(s.At, at)), unlessSame(s.Hook, hook), ui.Harmless(s.What))
		way, at, hook = s.Way, s.At, s.Hook
	}
	g.Print(w)
	if r.Cause == nil {
		fmt.Fprintf(w, "\n%s\n", ui.Harmless(r.Summary))
		return
	}
	fmt.Fprintf(w, "\ncause  %s: %s\nwhose  %s\n", r.Cause.Code, ui.Harmless(r.Cause.Summary), r.Cause.Whose)
	if r.Cause.Remedy != "" {
		fmt.Fprintf(w, "to do  %s\n", strings.ReplaceAll(ui.Harmless(r.Cause.Remedy), "\n", "\n       "))
	}
}

func unlessSame(now, before string) string {
	if now == before {
		return ""
	}
	return now
}
