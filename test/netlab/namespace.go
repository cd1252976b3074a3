package netlab

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace seen with the files of the Host it belongs to. Host, Pod and Outside are Namespaces.
// Its methods may be called from several goroutines at once.
type Namespace struct {
	name  string
	netns *os.File
	node  *node
}

// Name returns the name the namespace was given: a pod's name, "host" or "outside".
func (n *Namespace) Name() string { return n.name }

// Do runs fn on a thread that is in this network namespace and in its Host's mount namespace, and returns when fn does.
// Calls run side by side and may be nested.
//
// A panic in fn is raised again in the calling goroutine, with the stack of the original, and t.FailNow and t.SkipNow
// work in fn as they do outside of it. Goroutines that fn starts run outside of the namespace.
func (n *Namespace) Do(fn func()) {
	var panicked any
	var stack []byte
	returned := false
	onThread(func() error {
		defer func() {
			if panicked = recover(); panicked != nil {
				stack = debug.Stack()
			}
		}()
		if err := n.enter(); err != nil {
			panic(err)
		}
		fn()
		returned = true
		return nil
	})
	switch {
	case panicked != nil:
		panic(fmt.Sprintf("in %s: %v\n\n%s", n.name, panicked, stack))
	case !returned:
		runtime.Goexit() // what FailNow and SkipNow did to the goroutine of fn
	}
}

// do is Do for a function that returns an error.
func (n *Namespace) do(fn func() error) (err error) {
	n.Do(func() { err = fn() })
	return err
}

// onThread runs fn on a thread that ends with it, so that nobody else gets one in a foreign namespace.
func onThread(fn func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		err = fn()
	}()
	<-done
	return err
}

// enter moves the calling thread, which must be locked and must not be used again, into the namespace.
func (n *Namespace) enter() error {
	// The thread shares root and working directory with the others, and a mount namespace can't be entered so.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the file system attributes of a thread: %w", err)
	}
	wd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	if err := setns(n.node.mntns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace of %s: %w", n.name, err)
	}
	// Entering a mount namespace moves the thread to its root directory.
	if err := unix.Chdir(wd); err != nil {
		return fmt.Errorf("go back to %s in the mount namespace of %s: %w", wd, n.name, err)
	}
	if err := setns(n.netns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace of %s (deleted already?): %w", n.name, err)
	}
	if n.node.init == nil {
		return nil
	}
	if err := setns(n.node.pidns, unix.CLONE_NEWPID); err != nil { // which its children are in
		return fmt.Errorf("enter the PID namespace of %s: %w", n.name, err)
	}
	return nil
}

// setns enters a namespace. It works through the file's RawConn, which unlike Fd leaves the file alone and fails on a
// closed one, even when its number has been given to another file.
func setns(file *os.File, kind int) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var entered error
	err = conn.Control(func(fd uintptr) { entered = unix.Setns(int(fd), kind) })
	if err != nil {
		return err
	}
	return entered
}

// newNetns makes a network namespace, with its loopback link down as a runtime leaves it, and returns it open.
func newNetns() (file *os.File, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare a network namespace: %w", err)
		}
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return file, err
}
