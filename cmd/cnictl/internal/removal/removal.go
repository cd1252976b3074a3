// Package removal is what the commands that remove leavings share: gc, release and purge.
package removal

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Apply removes what goes, one after the other. A signal ends it after the one that it is at.
func Apply(cmd *cobra.Command, r *collect.Report, o collect.Options) (stopped error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	bar := ui.NewBar(cmd.ErrOrStderr(), "removing", len(r.Goes))
	defer bar.Stop()
	for _, it := range r.Goes {
		if ctx.Err() != nil {
			stopped = plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this", "it was told to end before all was tried")
			break
		}
		r.Free(context.WithoutCancel(ctx), it, o)
		bar.Step()
	}
	r.Sweep(context.WithoutCancel(ctx), o)
	return stopped
}

// Note says on standard error what a report does not know.
func Note(cmd *cobra.Command, r *collect.Report) {
	w := cmd.ErrOrStderr()
	for _, u := range r.Unread {
		text := u.Why
		if !strings.Contains(text, u.What) {
			text = u.What + ": " + text
		}
		fmt.Fprintf(w, "note: %s: what it is about counts as in use\n", ui.Harmless(text))
	}
	for _, a := range r.Runtimes {
		if a.Error != "" {
			fmt.Fprintf(w, "note: %s does not say what it runs: %s\n", a.Runtime, ui.Harmless(a.Error))
		}
	}
	for _, s := range r.Stays {
		if remedy := s.Remedy(); remedy != "" {
			fmt.Fprintf(w, "note: %s of network %s: %s\n", ui.Harmless(s.Name()), ui.Harmless(s.Network), ui.Harmless(remedy))
		}
	}
}

// Failures returns what stopped a report, and what failed.
func Failures(r *collect.Report) (errs []error) {
	for _, s := range r.Stops {
		errs = append(errs, plugin.CodeErrorf(types.ErrTryAgainLater, s.Remedy, "%s", s.Why))
	}
	for _, it := range r.Goes {
		if it.Err() != nil {
			errs = append(errs, it.Err())
		}
	}
	return errs
}

// OutcomeText says what came of an item, or would.
func OutcomeText(it *collect.Item, isApplied bool) string {
	switch {
	case !isApplied && it.Outcome == "":
		return "would go"
	case it.Outcome == collect.Removed:
		return ui.Good.Sprint("removed")
	case it.Outcome == collect.Failed:
		return ui.Bad.Sprint("failed")
	case it.Outcome == collect.Skipped:
		return ui.Weak.Sprint("skipped")
	}
	return ui.Weak.Sprint("not tried")
}
