// Package metrics prints figures of this node for Prometheus.
package metrics

import (
	"bytes"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/metrics"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// metricsFile is what the file for node_exporter is called.
const metricsFile = "cnibox.prom"

func New() *cobra.Command {
	var (
		where       network.Node
		dir, logDir string
	)
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print figures of this node for Prometheus",
		Long: `Print figures of this node as Prometheus reads them: pools, attachments, ports,
what doctor finds, and of the log the calls of plugins in the last hour. With
--textfile-dir they go to a file for node_exporter's textfile collector.
`,
		Example: `  cnictl metrics
  cnictl metrics --textfile-dir /var/lib/prometheus/node-exporter`,
		Args: ui.Arguments(0, 0),
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &where.Options)
	cmd.Flags().StringVar(&dir, "textfile-dir", "", "write to "+metricsFile+" in this directory")
	cmd.Flags().StringVar(&logDir, "log-dir", calllog.Dir, "directory of the log")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := where.Options
		o.Shared = true
		n := node.Read(cmd.Context(), o)
		found := doctor.Examine(cmd.Context(), doctor.Options{Options: o, Node: n})
		s := metrics.Source{Node: n, Findings: found.Findings, Time: time.Now()}
		if err := s.ReadLog(logDir); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: the log of calls can't be read: %v\n", err)
		}
		if dir == "" {
			var text bytes.Buffer
			if err := metrics.Write(&text, s); err != nil {
				return err
			}
			return ui.Write(cmd, text.Bytes())
		}
		if err := metrics.WriteFile(filepath.Join(dir, metricsFile), s); err != nil {
			return plugin.CodeErrorf(types.ErrIOFailure, "name the directory that node_exporter has with --collector.textfile.directory", "write the metrics: %w", err)
		}
		return nil
	}
	return cmd
}
