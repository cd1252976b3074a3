// Package detach deletes links by a second process of this binary, which waits in the place of the first one until the kernel has
// freed the link's memory: that takes many times as long as all else in a DEL.
package detach

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
)

// Deleter is a second process that deletes links for the calls of one plugin. It implements plugin.Deleter.
type Deleter struct {
	how   string            // CNIBOX_DETACH
	trace func(step string) // nil if nobody is to know

	started chan struct{} // closed when it is started, or could not be; nil until Start
	process *os.File      // its standard input and output: it ends when that is closed. Nil if it could not be started
}

// processName is what the second process is called by.
const processName = "cnibox-delete-link"

// answerTime bounds the wait for the second process. It takes a millisecond, or as long as others hold the kernel's lock on all
// links.
const answerTime = 2 * time.Second

// New returns a Deleter for the setting CNIBOX_DETACH: "always", "never", or where orphans are known to be reaped ("auto", as is ""). The
// trace is told what was decided, and why.
func New(how string, trace func(step string)) *Deleter {
	return &Deleter{how: cmp.Or(how, "auto"), trace: trace}
}

// Start starts the second process if one may be left behind, and does not wait for that. A caller that will need it calls this early,
// so that it is ready then.
func (d *Deleter) Start() {
	if d.started != nil {
		return
	}
	d.started = make(chan struct{})
	if !d.may() {
		close(d.started)
		return
	}
	go func() {
		defer close(d.started)
		d.process = startProcess()
	}()
}

// may decides whether a second process may be left behind.
func (d *Deleter) may() bool {
	may, why := d.how == "always", "CNIBOX_DETACH="+d.how
	if d.how == "auto" {
		may, why = mayLeave()
	}
	if d.trace != nil && may {
		d.trace("leave the end to an orphan: " + why)
	} else if d.trace != nil {
		d.trace("wait for the end: " + why)
	}
	return may
}

// startProcess starts the second process, which has no other file of the first one, and stays when that one ends.
func startProcess() *os.File {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), processName), os.NewFile(uintptr(ends[1]), processName)
	defer theirs.Close()
	file := theirs.Fd() // which sets it to wait
	// os.StartProcess would start one more process, to see what the kernel can.
	pid, err := syscall.ForkExec("/proc/self/exe", []string{processName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{file, file, file}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil || noteOrphan(pid) != nil {
		_ = ours.Close()
		return nil
	}
	return ours
}

// Delete removes a link as link.Delete does, but returns when the link is gone. Without a second process it waits.
func (d *Deleter) Delete(h *netlink.Handle, index int) error {
	d.Start()
	if <-d.started; d.process == nil {
		return link.Delete(h, index)
	}
	end := time.Now().Add(answerTime)
	err := d.process.SetDeadline(end)
	if err == nil {
		_, err = fmt.Fprintln(d.process, index)
	}
	if err == nil {
		_, err = d.process.Read(make([]byte, 1)) // that it begins
	}
	for pause := unix.NsecToTimespec(50_000); err == nil && time.Now().Before(end); {
		// The question waits for the kernel's lock on all links, and so for the deletion: it is asked a few times at most.
		if _, err = h.LinkByIndex(index); link.IsNotFound(err) {
			return nil
		}
		_ = unix.Nanosleep(&pause, nil)
	}
	return link.Delete(h, index) // it was refused, or the second process is gone
}

// Close lets the second process end when it has done what it was told.
func (d *Deleter) Close() {
	if d.started == nil {
		return
	}
	if <-d.started; d.process != nil {
		_ = d.process.Close()
	}
}

// Serve is the second process, and ends it, if this is one.
func Serve() {
	if len(os.Args) == 0 || os.Args[0] != processName {
		return
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		if index, err := strconv.Atoi(orders.Text()); err == nil {
			fmt.Println()
			_ = link.Delete(&netlink.Handle{}, index) // the first process asks what came of it
		}
	}
	os.Exit(0)
}
