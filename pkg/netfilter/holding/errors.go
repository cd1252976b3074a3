package holding

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// unavailableError is a types.Error that is netfilter.ErrUnavailable too.
type unavailableError struct {
	shown types.Error
	cause error
}

// Unavailable returns the error of a kernel that refuses the ruleset. It is
// netfilter.ErrUnavailable.
func (r *Ruleset) Unavailable(cause error) error {
	return &unavailableError{
		shown: types.Error{
			Code:    types.ErrPluginNotAvailable,
			Msg:     fmt.Sprintf("nftables table %s can't be made: %v", r.Table, cause),
			Details: r.Need,
		},
		cause: cause,
	}
}

func (e *unavailableError) Error() string { return e.shown.Error() }

// Unwrap returns the error that a runtime is shown, the class, and the cause.
func (e *unavailableError) Unwrap() []error {
	return []error{&e.shown, netfilter.ErrUnavailable, e.cause}
}

// explain makes an error out of a refusal that is about the kernel rather than
// about what is in it. tx is nil for a question.
func (t *Table) explain(tx *nftables.Transaction, err error) error {
	if err != nil && lacksRuleset(tx, err) {
		return t.Unavailable(err)
	}
	if errors.Is(err, nftables.ErrBusy) {
		return t.contended(err)
	}
	return err
}

// contended is the error of a call that met others too often.
func (t *Table) contended(last error) error {
	return &types.Error{
		Code:    types.ErrTryAgainLater,
		Msg:     fmt.Sprintf("table %s: given up after %d attempts: %v", t.Table, nftables.Tries, last),
		Details: "other processes change that table all the time; look who with `nft monitor`",
	}
}

func (t *Table) mismatch(format string, args ...any) *types.Error {
	return plugin.Errorf(fmt.Sprintf("something changed it after ADD: restart the container; see `nft list table %s`", t.Table), "table %s: %s", t.Table, fmt.Sprintf(format, args...))
}

func isMissing(err error) bool { return errors.Is(err, unix.ENOENT) }

func isErrno(err error, errno unix.Errno) bool { return errors.Is(err, errno) }
