package notes

import (
	"errors"
	"os"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestFailed(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "/d/net/web", Err: unix.ENOSPC}
	for err, code := range map[error]uint{full: types.ErrIOFailure, errors.New("another"): types.ErrInternal} {
		if failed := (Dir{"/d/net"}).Failed(err); plugin.AsError(failed).Code != code || !errors.Is(failed, err) {
			t.Errorf("%v: %v, want the code %d", err, failed, code)
		}
	}
}
