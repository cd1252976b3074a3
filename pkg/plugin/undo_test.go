package plugin

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// Steps are undone from the last to the first, each of them whatever becomes of the others, also in a call that was cancelled, or by a bug.
func TestUndo(t *testing.T) {
	failure := &types.Error{Code: types.ErrTryAgainLater, Msg: "no address left", Details: "wait"}
	for name, tt := range map[string]struct {
		result error
		do     func() error // for the second step
		bug    bool
		undone bool
		msg    string
	}{
		"success":             {},
		"failure":             {result: failure, undone: true, msg: "no address left"},
		"a step that fails":   {result: failure, do: func() error { return errors.New("busy") }, undone: true, msg: "no address left (and not everything could be undone: take back lease: busy)"},
		"a step that panics":  {result: failure, do: func() error { panic("oh") }, undone: true, msg: "no address left (and not everything could be undone: take back lease: bug: oh)"},
		"a bug of the plugin": {bug: true, undone: true},
	} {
		t.Run(name, func(t *testing.T) {
			type key struct{}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
			cancel()
			var ran []string
			err := func() (err error) {
				defer func() {
					if p := recover(); (p == "a bug") != tt.bug {
						t.Errorf("panic %v", p)
					}
				}()
				var undo Undo
				defer undo.OnError(ctx, &err)
				for _, step := range []string{"link", "lease", "rule"} {
					undo.Push("take back "+step, func(ctx context.Context) error {
						if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded || ctx.Value(key{}) != "kept" {
							t.Errorf("the step's context: error %v, bounded %v, value %v", ctx.Err(), bounded, ctx.Value(key{}))
						}
						if ran = append(ran, step); step == "lease" && tt.do != nil {
							return tt.do()
						}
						return nil
					})
				}
				if tt.bug {
					panic("a bug")
				}
				return tt.result
			}()
			if undone := slices.Equal(ran, []string{"rule", "lease", "link"}); undone != tt.undone || !undone && ran != nil {
				t.Errorf("ran %v", ran)
			}
			if tt.msg == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e := AsError(err); e.Code != failure.Code || e.Details != failure.Details || e.Msg != tt.msg {
				t.Errorf("error %#v, want %q", e, tt.msg)
			}
		})
	}
	if failure.Msg != "no address left" {
		t.Error("the returned error itself was changed")
	}
}
