package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// lockFile is locked by whoever changes one of our tables, or one of the reference plugins', from the look at what is there until
// the change is made. No other lock is taken meanwhile.
const lockFile = "nftables.lock"

// final is an error that another try would not change.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Change makes a change, while nobody else of us does, that is decided on by a look at what is there. If it fails by what others, who
// don't know the lock, have changed in between, it is tried again. what is for errors.
func Change(ctx context.Context, what string, try func() error) error {
	return state.Locked(ctx, lockFile, func() error {
		err := try()
		if isRace(err) {
			err = try()
		}
		if isRace(err) {
			return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s: given up after 2 attempts: %v", what, err),
				"another program changes the same at the same time; look which with `nft monitor`")
		}
		return err
	})
}

// isRace reports whether a change failed by something that was not there any more, or was there already.
func isRace(err error) bool {
	if errors.As(err, new(*types.Error)) || errors.As(err, new(final)) || plugin.IsMissingFeature(err) {
		return false
	}
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY)
}

func (t *table) change(ctx context.Context, try func() error) error {
	return Change(ctx, "change table "+t.String(), try)
}

// commit makes the changes to the table that were collected, all or none.
func (t *table) commit() error {
	err := t.conn.Commit("change table " + t.String())
	t.unsure = err != nil
	return err
}
