package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestLaggingMember has a member answer that has not heard yet of a token, or of users, what another one knows.
func TestLaggingMember(t *testing.T) {
	for _, err := range []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision} {
		if !mayHelpToRepeat(err) {
			t.Errorf("%v ends the call", err)
		}
	}
	if mayHelpToRepeat(rpctypes.ErrPermissionDenied) {
		t.Error("a user without rights is asked for again")
	}
}
