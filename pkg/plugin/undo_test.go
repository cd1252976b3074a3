package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// steps pushes steps that note their names, and do what is given for them.
func steps(u *Undo, ran *[]string, do map[string]func() error, names ...string) {
	for _, name := range names {
		u.Push("take back "+name, func(context.Context) error {
			*ran = append(*ran, name)
			if f := do[name]; f != nil {
				return f()
			}
			return nil
		})
	}
}

func add(ctx context.Context, do map[string]func() error, result error) (ran []string, err error) {
	err = func() (err error) {
		var undo Undo
		defer undo.OnError(ctx, &err)
		steps(&undo, &ran, do, "link", "lease", "rule")
		return result
	}()
	return ran, err
}

func TestUndoRunsNewestFirst(t *testing.T) {
	failure := &types.Error{Code: types.ErrTryAgainLater, Msg: "no address left", Details: "wait"}
	ran, err := add(context.Background(), nil, failure)
	if want := []string{"rule", "lease", "link"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	if err != failure {
		t.Errorf("error %v, want the one that was returned", err)
	}
}

func TestUndoDoesNothingOnSuccess(t *testing.T) {
	if ran, err := add(context.Background(), nil, nil); ran != nil || err != nil {
		t.Errorf("ran %v, error %v", ran, err)
	}
}

func TestUndoRunsInACancelledCall(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "kept"))
	cancel()
	err := func() (err error) {
		var undo Undo
		defer undo.OnError(ctx, &err)
		undo.Push("look at the context", func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded || ctx.Value(key{}) != "kept" {
				t.Errorf("the step's context: error %v, bounded %v, value %v", ctx.Err(), bounded, ctx.Value(key{}))
			}
			return nil
		})
		return ctx.Err()
	}()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestUndoGoesOnAfterAFailure(t *testing.T) {
	failure := &types.Error{Code: types.ErrTryAgainLater, Msg: "no address left", Details: "wait"}
	ran, err := add(context.Background(), map[string]func() error{
		"rule":  func() error { return errors.New("busy") },
		"lease": func() error { panic("no lease") },
	}, failure)
	if want := []string{"rule", "lease", "link"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	e := AsError(err)
	if e.Code != failure.Code || e.Details != failure.Details {
		t.Errorf("error %#v lost its code or details", e)
	}
	for _, want := range []string{"no address left (and not everything could be undone", "take back rule: busy", "take back lease: bug: no lease"} {
		if !strings.Contains(e.Msg, want) {
			t.Errorf("message %q, want it to contain %q", e.Msg, want)
		}
	}
	if failure.Msg != "no address left" {
		t.Error("the returned error itself was changed")
	}
}

func TestUndoRunsOnAPanic(t *testing.T) {
	var ran []string
	func() {
		defer func() {
			if p := recover(); p != "a bug" {
				t.Errorf("panic %v, want the one that was raised", p)
			}
		}()
		var err error
		var undo Undo
		defer undo.OnError(context.Background(), &err)
		steps(&undo, &ran, nil, "link", "lease")
		panic("a bug")
	}()
	if want := []string{"lease", "link"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}
