package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/collect"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// apply removes what goes, one after the other. A signal ends it after the one that it is at.
func apply(cmd *cobra.Command, r *collect.Report, o collect.Options) (stopped error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	bar := newBar(cmd.ErrOrStderr(), "removing", len(r.Goes))
	defer bar.stop()
	for _, it := range r.Goes {
		if ctx.Err() != nil {
			stopped = plugin.Errorf("repeat this", "it was told to end before all was tried")
			break
		}
		r.Free(context.WithoutCancel(ctx), it, o)
		bar.step()
	}
	r.Sweep(context.WithoutCancel(ctx), o)
	return stopped
}

// note says on standard error what a report does not know.
func note(cmd *cobra.Command, r *collect.Report) {
	w := cmd.ErrOrStderr()
	for _, u := range r.Unread {
		text := u.Why
		if !strings.Contains(text, u.What) {
			text = u.What + ": " + text
		}
		fmt.Fprintf(w, "note: %s: what it is about counts as in use\n", harmless(text))
	}
	for _, a := range r.Runtimes {
		if a.Error != "" {
			fmt.Fprintf(w, "note: %s does not say what it runs: %s\n", a.Runtime, harmless(a.Error))
		}
	}
	for _, s := range r.Stays {
		if remedy := s.Remedy(); remedy != "" {
			fmt.Fprintf(w, "note: %s of network %s: %s\n", harmless(s.Name()), harmless(s.Network), harmless(remedy))
		}
	}
}

// failures returns what stopped a report, and what failed.
func failures(r *collect.Report) (errs []error) {
	for _, s := range r.Stops {
		errs = append(errs, plugin.Errorf(s.Remedy, "%s", s.Why))
	}
	for _, it := range r.Goes {
		if it.Err() != nil {
			errs = append(errs, it.Err())
		}
	}
	return errs
}

func outcomeText(it *collect.Item, isApplied bool) string {
	switch {
	case !isApplied:
		return "would go"
	case it.Outcome == collect.Removed:
		return good.Sprint("removed")
	case it.Outcome == collect.Failed:
		return bad.Sprint("failed")
	case it.Outcome == collect.Skipped:
		return weak.Sprint("skipped")
	}
	return weak.Sprint("not tried")
}
