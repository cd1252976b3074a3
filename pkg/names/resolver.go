package names

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/cnibox/cnibox/pkg/state"
)

// Where the resolver answers, at the gateways of containers. ListPort is for those with names on their lists, whose questions are sent there whichever server
// they are for: nobody has been given it (IANA), so no other program should be there, which would hand their questions on.
const Port, ListPort = 53, 305

// lockFile is locked by the resolver that runs.
const lockFile = "names.lock"

// Claim makes the caller the node's one resolver, until it releases the lock. It waits for who asks at the moment whether there is one.
func Claim(ctx context.Context) (*state.Lock, error) {
	return state.LockRunWithin(ctx, lockFile, time.Second)
}

// HasResolver reports whether a resolver runs on this node. It waits for nothing.
func HasResolver() bool {
	path := state.RunFile(lockFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	lock, err := state.Try(path)
	if lock != nil {
		lock.Release()
		return false
	}
	return err == nil
}
