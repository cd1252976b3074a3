package link

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Deleter is a second process of this binary. It deletes a link and waits until the kernel has freed the link's memory, so that the
// first need not: that takes many times as long as all else in a DEL. It is started early, to be ready when it is needed.
type Deleter struct {
	started chan struct{} // closed when it is, or could not be
	process *os.File      // its standard input and output: it ends when that is closed. Nil if it could not be started
}

// deleterName is what the second process is called by.
const deleterName = "cnibox-delete-link"

// detachedWithin bounds the wait for the second process. It takes a millisecond, or as long as others hold the kernel's lock on all
// links.
const detachedWithin = 2 * time.Second

// StartDeleter starts the second process, and does not wait for that.
func StartDeleter() *Deleter {
	d := &Deleter{started: make(chan struct{})}
	go func() {
		defer close(d.started)
		d.process = startDeleter()
	}()
	return d
}

// startDeleter starts the second process, which has no other file of the first one, and stays when that one ends.
func startDeleter() *os.File {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), deleterName), os.NewFile(uintptr(ends[1]), deleterName)
	defer theirs.Close()
	file := theirs.Fd() // which sets it to wait
	// os.StartProcess would start one more process, to see what the kernel can.
	pid, err := syscall.ForkExec("/proc/self/exe", []string{deleterName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{file, file, file}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil || noteOrphan(pid) != nil {
		_ = ours.Close()
		return nil
	}
	return ours
}

// Delete removes a link as the function Delete does, but returns when the link is gone. Without a second process it waits.
func (d *Deleter) Delete(h *netlink.Handle, index int) error {
	if d.wait() == nil {
		return Delete(h, index)
	}
	end := time.Now().Add(detachedWithin)
	err := d.process.SetDeadline(end)
	if err == nil {
		_, err = fmt.Fprintln(d.process, index)
	}
	if err == nil {
		_, err = d.process.Read(make([]byte, 1)) // that it begins
	}
	for pause := unix.NsecToTimespec(50_000); err == nil && time.Now().Before(end); {
		// The question waits for the kernel's lock on all links, and so for the deletion: it is asked a few times at most.
		if _, err = h.LinkByIndex(index); IsNotFound(err) {
			return nil
		}
		_ = unix.Nanosleep(&pause, nil)
	}
	return Delete(h, index) // it was refused, or the second process is gone
}

// wait waits until the second process is started, and returns its file, nil if there is none.
func (d *Deleter) wait() *os.File {
	if d == nil {
		return nil
	}
	<-d.started
	return d.process
}

// Close lets the second process end when it has done what it was told.
func (d *Deleter) Close() {
	if process := d.wait(); process != nil {
		_ = process.Close()
	}
}

// ServeDeleter is the second process, and ends it, if this is one.
func ServeDeleter() {
	if len(os.Args) == 0 || os.Args[0] != deleterName {
		return
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		if index, err := strconv.Atoi(orders.Text()); err == nil {
			fmt.Println()
			_ = Delete(&netlink.Handle{}, index) // the first process asks what came of it
		}
	}
	os.Exit(0)
}
