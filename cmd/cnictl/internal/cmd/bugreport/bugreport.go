// Package bugreport writes one archive of all that may matter when something is wrong with a node's container networks. It is for nodes
// on which little works: each part is read on its own, in a time of its own, and what can't be read is an error beside the rest. Most parts are what
// other commands of cnictl and other programs print.
package bugreport

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trust"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// lookLimit is how long it may take to find out whether a network is there.
const lookLimit = 30 * time.Second

// reported is what bugreport prints with --json.
type reported struct {
	File string `json:"file"`
	*Manifest
}

func New() *cobra.Command {
	var (
		where         network.Node
		file, network string
		dryRun        bool
	)
	cmd := &cobra.Command{
		Use:   "bugreport",
		Short: "Write one archive of all that may matter when something is wrong",
		Long: `Write one archive of what is on the node: networks, attachments, links, rules,
versions, logs. Values that may be secret are left out. It reads each part in a
time of its own, and goes on where one can't be read; it changes nothing.
`,
		Example: `  cnictl bugreport --dry-run
  cnictl bugreport -o /tmp/report.tar.gz`,
		Args: ui.Arguments(0, 0),
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &where.Options)
	ui.AddJSONFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&file, "output", "o", "", `the archive's file, which must not be there yet, or "-" for standard output (default: cnibox-bugreport-HOST-TIME.tar.gz)`)
	ui.AddNetworkFlag(cmd, &network, "only what is of this network, where that can be told")
	flags.BoolVar(&dryRun, "dry-run", false, "list what would be read, and read nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if dryRun {
			return listParts(cmd)
		}
		if err := requireNetwork(cmd.Context(), where.Options, network); err != nil {
			return err
		}
		return writeBugreport(cmd, file, Options{Options: where.Options, Network: network, Version: cmd.Root().Version})
	}
	return cmd
}

// requireNetwork refuses a network that is not there. On a node that does not say so in time it may be.
func requireNetwork(ctx context.Context, o node.Options, name string) error {
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	n := node.Read(ctx, o)
	if ctx.Err() != nil {
		return nil
	}
	return lookup.RequireNetwork(n, o.ConfDir, name)
}

func listParts(cmd *cobra.Command) error {
	return ui.Output(cmd, map[string]any{"parts": parts}, func(w io.Writer) {
		g := ui.NewGrid("PART", "READS")
		for _, p := range parts {
			g.Add(p.Name, p.Reads)
		}
		g.Print(w)
	})
}

// writeBugreport collects all and writes it. When it is told to end it writes what it has.
func writeBugreport(cmd *cobra.Command, file string, o Options) (err error) {
	to := &trust.File{File: os.Stdout}
	if file != "-" {
		if to, err = trust.New(cmp.Or(file, defaultReport()), 0o600); err != nil { // what is there may be somebody else's, who could read it
			return plugin.CodeErrorf(types.ErrIOFailure, "name another file with -o, or use -o - for standard output", "make the report: %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := newSource(o)
	bar := ui.NewSlowBar(cmd.ErrOrStderr(), "reading", len(parts))
	for _, p := range parts {
		s.read(ctx, p)
		bar.Step()
	}
	bar.Stop()
	m := s.end()
	err = m.Write(to)
	if file == "-" {
		return err
	}
	size, _ := to.Seek(0, io.SeekEnd)
	if err != nil {
		_ = to.Discard()
	} else {
		err = to.Close()
	}
	if err != nil {
		return plugin.CodeErrorf(types.ErrIOFailure, "name a file on another filesystem with -o, or use -o -", "write the report: %w", err)
	}
	return ui.Output(cmd, reported{to.Name(), m}, func(w io.Writer) { describeBugreport(w, to.Name(), size, m) })
}

func defaultReport() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("cnibox-bugreport-%s-%s.tar.gz", cmp.Or(host, "node"), time.Now().UTC().Format("20060102T150405Z"))
}

func describeBugreport(w io.Writer, name string, size int64, m *Manifest) {
	files := 0
	for _, p := range m.Parts {
		files += len(p.Files)
	}
	fmt.Fprintf(w, "%s: %s, %d files of %d parts\n", ui.Harmless(name), humanize.Bytes(uint64(size)), files, len(m.Parts))
	for _, p := range m.Parts {
		if p.Errors != nil {
			fmt.Fprintf(w, "  %s %s: %s\n", ui.Weak.Sprint("not all of"), p.Part, ui.Harmless(shorten(strings.Join(p.Errors, "; "))))
		}
	}
	fmt.Fprintf(w, `
%d values that may be secret are left out. Look at these yourself before you send it:
  files/          configurations of networks, and what runtimes asked for
  programs/       packet filter, routes, lines of the journal
It has names of pods and containers and addresses throughout; manifest.json lists what may be seen.
`, m.LeftOut)
}

// shorten cuts a text to about a line.
func shorten(text string) string {
	const most = 160
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
