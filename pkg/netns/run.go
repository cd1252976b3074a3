package netns

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls f inside the namespace. A socket made in f stays in the namespace
// and can be used outside. Goroutines started by f are not inside.
//
// The caller's thread enters the namespace and comes back: a goroutine for f
// would cost another thread, up to 0.05 ms. (LockOSThread costs one already,
// when it is first called; 0.03 ms. Nothing else keeps f on its thread.)
func (ns *NS) Run(f func() error) error {
	runtime.LockOSThread()
	home, err := openOwn()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer unix.Close(home)
	if !canEnter(home) {
		runtime.UnlockOSThread()
		return ns.runAside(f)
	}
	if err := ns.enter(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer comeBack(home)
	return f()
}

func (ns *NS) enter() error {
	if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
		return ns.noEntry(err)
	}
	return nil
}

func (ns *NS) noEntry(err error) error {
	return fmt.Errorf("enter network namespace %s: %w", ns.path, err)
}

// canEnter tells, by entering it, whether the calling thread may enter the
// namespace that it is in: before it leaves it, for 1 us.
func canEnter(own int) bool { return unix.Setns(own, unix.CLONE_NEWNET) == nil }

// comeBack ends what Run began. The kernel let the thread in here a moment ago,
// so that it fails only for want of memory or when f gave its privileges up.
// Whoever recovers from the panic is still locked to the thread, and has to end
// with it.
func comeBack(home int) {
	if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("leave a network namespace: %v", err))
	}
	runtime.UnlockOSThread()
}

// runAside calls f on a thread that never comes back and ends. It is for
// processes in a user namespace that has no power over their own network
// namespace: they may enter those of their containers, and not return.
func (ns *NS) runAside(f func() error) error {
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // a goroutine that ends while locked takes its thread with it
		var out outcome
		defer func() {
			if p := recover(); p != nil {
				out.panicked = trace(p, ns.path)
			}
			done <- out
		}()
		if out.err = ns.enter(); out.err == nil {
			out.err = f()
		}
	}()
	out := <-done
	if out.panicked != nil {
		panic(out.panicked)
	}
	return out.err
}

// trace adds to a panic where it was, which is lost when it is raised again in
// another goroutine.
func trace(p any, path string) string {
	stack := make([]byte, 4<<10)
	stack = stack[:runtime.Stack(stack, false)]
	return fmt.Sprintf("%v, in network namespace %s:\n%s", p, path, stack)
}
