package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// undoTime bounds all steps of an unwinding together.
const undoTime = 15 * time.Second

// Undo takes back what an ADD has done so far, newest first. An ADD defers
// OnError and pushes a step after each change it made:
//
//	var undo plugin.Undo
//	defer undo.OnError(ctx, &err)
type Undo struct {
	steps []undoStep
}

type undoStep struct {
	what string
	do   func(ctx context.Context) error
}

// Push adds the step that takes back the change just made.
func (u *Undo) Push(what string, do func(ctx context.Context) error) {
	u.steps = append(u.steps, undoStep{what, do})
}

// OnError unwinds if *err is set, or the function that deferred it panics. The
// steps run even when ctx was cancelled; one that fails is added to *err.
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
	for i := len(u.steps) - 1; i >= 0; i-- {
		if err := u.steps[i].run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.steps[i].what, err))
		}
	}
	u.steps = nil
	return errors.Join(errs...)
}

// run makes an error of a panic: the other steps are taken all the same.
func (s undoStep) run(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bug: %v", p)
		}
	}()
	return s.do(ctx)
}
