package log

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/calllog"
)

func newLogOn(dir string) *cobra.Command {
	var size string
	cmd := &cobra.Command{
		Use:   "on",
		Short: "Turn the log on: each later call of a plugin leaves a line in it",
		Args:  ui.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			limit, err := humanize.ParseBytes(size)
			if err != nil || limit < calllog.MinSize || limit > calllog.MaxSize {
				return ui.Usagef("--size %q: want a size from 16kB to 100MB, such as 20MB", size)
			}
			if err := calllog.On(dir, int64(limit)); err != nil {
				return fmt.Errorf("turn the log on: %w", err)
			}
			return printLogStatus(cmd, dir)
		},
	}
	cmd.Flags().StringVar(&size, "size", "10MB", "how large the log's file may become; the one before it is kept, too")
	ui.AddJSONFlag(cmd)
	return cmd
}

func newLogOff(dir string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "off",
		Short: "Turn the log off; what it has can still be read",
		Args:  ui.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := calllog.Off(dir); err != nil {
				return fmt.Errorf("turn the log off: %w", err)
			}
			return printLogStatus(cmd, dir)
		},
	}
	ui.AddJSONFlag(cmd)
	return cmd
}

func newLogStatus(dir string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether the log is on, and what it has",
		Args:  ui.Arguments(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return printLogStatus(cmd, dir) },
	}
	ui.AddJSONFlag(cmd)
	return cmd
}

// logStatus is what log on, off and status print with --json.
type logStatus struct {
	calllog.Status
	Calls  int        `json:"calls"`
	Begins *time.Time `json:"begins,omitempty"` // the first call's time
	Torn   int        `json:"torn"`
}

func printLogStatus(cmd *cobra.Command, dir string) error {
	s, err := calllog.Look(dir)
	if err != nil {
		return err
	}
	all, torn, err := calllog.Read(dir)
	document := logStatus{Status: s, Calls: len(all), Torn: torn}
	if len(all) > 0 {
		document.Begins = &all[0].Time
	}
	return errors.Join(ui.Output(cmd, document, document.describe), err)
}

func (s *logStatus) describe(w io.Writer) {
	if s.On {
		fmt.Fprintf(w, "the log is %s: calls are written to %s, of %s at most and the one before it\n", ui.Good.Sprint("on"), s.File, humanize.Bytes(uint64(s.Limit)))
	} else {
		fmt.Fprintf(w, "the log is %s: calls leave nothing\n", ui.Weak.Sprint("off"))
	}
	if s.Begins != nil {
		fmt.Fprintf(w, "it has %s since %s, in %s\n", ui.Counted(s.Calls, "call"), moment(*s.Begins), humanize.Bytes(uint64(s.Size)))
	}
	if s.Torn > 0 {
		fmt.Fprintf(w, "torn, as by a full disk: %s\n", ui.Counted(s.Torn, "line"))
	}
}
