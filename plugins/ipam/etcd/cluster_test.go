package etcd

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
	"github.com/cnibox/cnibox/test/netlab"
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

// TestAttempt gives a call less time than timeoutSeconds: a member that hangs must leave it time to ask another.
func TestAttempt(t *testing.T) {
	ctx, end := context.WithTimeout(t.Context(), netlab.Patience)
	defer end()
	for _, tt := range []struct {
		ctx   context.Context
		limit time.Duration // timeoutSeconds
		most  time.Duration // for an attempt
	}{{t.Context(), 60 * time.Second, 15 * time.Second}, {ctx, 10 * netlab.Patience, netlab.Patience / 4}, {ctx, 2 * time.Second, time.Second / 2}} {
		c, err := dial(tt.ctx, &settings.Settings{Endpoints: []string{"http://127.0.0.1:1"}, Timeout: tt.limit})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.attempt > tt.most || tt.ctx == t.Context() && c.attempt != tt.most {
			t.Errorf("an attempt of %v has %v, want at most %v", tt.limit, c.attempt, tt.most)
		}
	}
}
