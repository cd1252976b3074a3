package names

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Mend compares what is written down with what ADD writes.
func (r *Record) Mend(m *plugin.Mender) error {
	have, err := Read(r.Key, r.kind())
	switch {
	case err != nil:
		return err
	case have == nil:
		err = different("the %s of %s are not written down", r.kind(), r.Key)
	case !have.Is(r):
		err = different("what is written down of %s is not what its network says: %s", r.Key, have)
	}
	m.Mend(err, "write down the "+r.String(), r.Write)
	return nil
}

func different(format string, args ...any) error {
	return plugin.Errorf("something changed it since ADD: "+plugin.RepairRemedy, format, args...)
}

// CheckReady reports whether records can be written, and somebody answers who reads them. without is what containers lack if nobody does.
func CheckReady(without string) error {
	dir := Dir()
	err := errNoDir
	if dir != "" {
		err = state.Writable(dir)
	}
	if err != nil {
		return plugin.Unavailable(fileError(err))
	}
	if !HasResolver() {
		return plugin.CodeErrorf(types.ErrPluginNotAvailable, "start it: `systemctl enable --now cnibox-agent` or `cnictl agent --dns`; without it "+without,
			"nobody answers when containers ask for names: no `cnictl agent --dns` runs")
	}
	return nil
}

var errNoDir = errors.New("neither /run nor $XDG_RUNTIME_DIR can be written")

func fileError(err error) error {
	if err == nil {
		return nil
	}
	return plugin.CodeErrorf(types.ErrIOFailure, "make /run/cnibox a directory that root can write to, on a disk that is not full", "file of names: %w", err)
}

// Held lists the records of a kind. It implements plugin.Store.
func (k Kind) Held(context.Context, string) (list []plugin.Held, err error) {
	all, err := List(k)
	for _, r := range all {
		list = append(list, plugin.Held{Key: r.Key, What: r.String(), Since: r.Since})
	}
	return list, err
}

// Release removes records.
func (k Kind) Release(_ context.Context, list []plugin.Held) error {
	var errs []error
	for _, h := range list {
		if err := Remove(h.Key, k); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.Key, err))
		}
	}
	return errors.Join(errs...)
}
