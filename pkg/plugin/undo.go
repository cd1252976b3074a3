package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// undoTime bounds all steps of an unwinding together.
const undoTime = 15 * time.Second

// Undo takes back what an ADD has done so far, newest first. An ADD defers OnError and pushes a step after each change it made:
//
//	var undo plugin.Undo
//	defer undo.OnError(ctx, &err)
type Undo struct {
	steps []func(ctx context.Context) error
}

// Push adds the step that takes back the change just made. If it panics that is an error: the other steps are taken all the same.
func (u *Undo) Push(what string, do func(ctx context.Context) error) {
	u.steps = append(u.steps, func(ctx context.Context) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("bug: %v", p)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
		}()
		return do(ctx)
	})
}

// OnError unwinds if *err is set, or the function that deferred it panics. The steps run even when ctx was cancelled; one that
// fails is added to *err.
func (u *Undo) OnError(ctx context.Context, err *error) {
	if p := recover(); p != nil {
		_ = u.unwind(ctx)
		panic(p)
	}
	if *err == nil {
		return
	}
	if failed := u.unwind(ctx); failed != nil {
		e := *AsError(*err)
		e.Msg += fmt.Sprintf(" (and not everything could be undone: %v)", failed)
		*err = &e
	}
}

func (u *Undo) unwind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		errs = append(errs, step(ctx))
	}
	u.steps = nil
	return errors.Join(errs...)
}
