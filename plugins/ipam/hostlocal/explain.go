package hostlocal

import (
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// explain turns an error of the store's Allocate into one that helps.
func explain(err error, c *config, r *plugin.Request) error {
	var (
		second *lease.HeldError
		taken  *lease.TakenError
		full   *lease.FullError
	)
	switch {
	case errors.As(err, &second):
		return plugin.Errorf("an attachment gets one address of each range set: call DEL for it before the next ADD; what it has is unchanged", "failed to allocate for range %d: %v", second.Pool, err)
	case errors.As(err, &taken):
		return &types.Error{
			Code:    types.ErrTryAgainLater,
			Msg:     fmt.Sprintf("failed to allocate for range %d: %v", taken.Pool.Index, err),
			Details: "ask for another address, or call DEL for that attachment if it is gone",
		}
	case errors.As(err, &full):
		return &types.Error{
			Code:    types.ErrTryAgainLater,
			Msg:     fmt.Sprintf("failed to allocate for range %d: %v; %d are held in network %s", full.Pool.Index, err, len(full.Leases), r.Network),
			Details: staleness(r.Results, r.Network, full.Leases) + "run `cnictl gc` to free what is stale, or enlarge the range",
		}
	}
	store, serr := c.store(r.Network)
	if serr != nil {
		return serr
	}
	return storeError(err, store, "take an address")
}

// staleness says how many leases look like nobody's: libcni keeps a result for
// each attachment that it made. It says nothing when the runtime keeps none
// there.
func staleness(dir, network string, leases []lease.Lease) string {
	without := 0
	for _, l := range leases {
		if l.Owner.IfName == "" {
			continue
		}
		_, err := os.Stat(fmt.Sprintf("%s/%s-%s-%s", dir, network, l.Owner.ContainerID, l.Owner.IfName))
		if errors.Is(err, os.ErrNotExist) {
			without++
		}
	}
	if _, err := os.Stat(dir); err != nil || without == 0 {
		return ""
	}
	return fmt.Sprintf("%d of them have no result in %s and may be stale: ", without, dir)
}

// storeError is an error of the files. One that is made for runtimes (a busy
// lock) is kept as it is.
func storeError(err error, store *lease.Store, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	var known *types.Error
	if errors.As(err, &known) {
		return fmt.Errorf("host-local: %s: %w", what, err)
	}
	return plugin.Errorf(fmt.Sprintf("the leases are kept in %s: make sure it can be read and written and its disk is not full", store.Path()), "host-local: %s: %v", what, err)
}
