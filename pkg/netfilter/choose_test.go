package netfilter

import (
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestValidate: a backend that nobody has, or that other keys forbid, is an invalid configuration, and the error says what to do.
func TestValidate(t *testing.T) {
	for _, w := range []Wish{{Value: "NFTables"}, {Value: "nftables", IPTables: "a"}, {Value: "iptables", NFTables: "a"}, {IPTables: "a", NFTables: "b"}} {
		w.Key = "backend"
		if err := w.Validate(); err == nil || plugin.AsError(err).Code != types.ErrInvalidNetworkConfig || plugin.AsError(err).Details == "" {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

// TestReason: what fails for the backend's sake says which that was, and why.
func TestReason(t *testing.T) {
	const want = `masquerades with nothing: backend: unknown backend "x"; use "nftables" or "iptables", or leave it out`
	if got := Masquerade(nil).Explain(Wish{Key: "backend", Value: "x"}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	failed := &types.Error{Code: types.ErrTryAgainLater, Msg: "the lock is held", Details: "wait"}
	c := Choice{Backend: IPTables, Reason: "backend says so"}
	if e := plugin.AsError(c.withReason(failed)); e.Msg != "backend iptables (backend says so): the lock is held" || e.Code != failed.Code || e.Details != "wait" {
		t.Errorf("%+v", e)
	}
	c.Preferred = true
	if err := c.withReason(failed); err != error(failed) {
		t.Error(err)
	}
}
