package contivk8s

import (
	"context"
	"errors"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// notes are what is noted of attachments, and of deletions that the daemon has not had.
type notes struct{}

// deletion is one that the daemon has not had. It is nobody's: its attachment is gone.
type deletion struct{ contiv.Record }

// Held lists both, and files that can be of neither.
func (notes) Held(_ context.Context, network string) (list []plugin.Held, err error) {
	records, err := contiv.Records()
	for _, r := range records {
		if r.Key == (plugin.Key{}) {
			list = append(list, plugin.Held{Key: plugin.Key{Network: network}, What: "file " + r.Path(), Own: r})
			continue
		}
		list = append(list, plugin.Held{Key: r.Key, What: "contiv endpoint of pod " + r.PodName(), Since: r.Since, Own: r})
	}
	deletions, failed := contiv.Deletions()
	for _, d := range deletions {
		what := "deletion of " + d.Key.String() + ", which contiv's daemon at " + d.Socket + " has not had"
		if d.Key == (plugin.Key{}) {
			what, d.Network = "file "+d.Path(), network
		}
		list = append(list, plugin.Held{Key: plugin.Key{Network: d.Network}, What: what, Own: deletion{d}})
	}
	return list, errors.Join(err, failed)
}

// releaseTime bounds a Release: what is left then is queued.
const releaseTime = time.Minute

// Release has the daemons delete attachments, or queues that, and tells them of deletions.
func (notes) Release(ctx context.Context, list []plugin.Held) error {
	ctx, end := context.WithTimeout(ctx, releaseTime)
	defer end()
	var errs []error
	for _, h := range list {
		own, cancel := context.WithTimeout(ctx, delTimeout)
		switch listed := h.Own.(type) {
		case contiv.Record:
			errs = append(errs, releaseNoted(own, listed))
		case deletion:
			errs = append(errs, releaseQueued(own, listed.Record))
		}
		if own.Err() != nil { // a daemon that is silent: the others need not wait for it
			end()
		}
		cancel()
	}
	return errors.Join(errs...)
}

// releaseNoted releases an attachment, unless it was made anew meanwhile.
func releaseNoted(ctx context.Context, listed contiv.Record) error {
	if listed.Key == (plugin.Key{}) {
		return state.Remove(listed.Path())
	}
	now := contiv.Read(listed.Key)
	if now == nil || !now.Since.Equal(listed.Since) {
		return nil
	}
	_, err := release(ctx, &plugin.Request{Key: now.Key}, *now)
	return err
}

func releaseQueued(ctx context.Context, listed contiv.Record) error {
	if listed.ContainerID == "" {
		return state.Remove(listed.Path())
	}
	lock, err := contiv.LockDeletions(ctx, delTimeout)
	if err != nil {
		return err
	}
	defer lock.Release()
	if _, err = deliverOne(ctx, listed); err == nil {
		return nil
	}
	e := *plugin.AsError(err)
	e.Details += "; to give the deletion up, remove " + listed.Path()
	return &e
}
