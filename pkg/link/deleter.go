package link

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// Deleter is a second process of this binary. It deletes a link and waits until the kernel has freed the link's memory, so that the
// first need not: that takes many times as long as all else in a DEL. It is started early, to be ready when it is needed.
type Deleter struct {
	orders *os.File // to its standard input; it ends when that does
}

// deleterName is what the second process is called by.
const deleterName = "cnibox-delete-link"

// detachedWithin bounds the wait for the second process. It takes a millisecond, or as long as others hold the kernel's lock on all
// links.
const detachedWithin = 2 * time.Second

// StartDeleter starts the second process. It has no file of the first one but its orders, and stays when the first one ends.
func StartDeleter() (*Deleter, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	defer null.Close()
	process, err := os.StartProcess("/proc/self/exe", []string{deleterName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{read, null, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a second process: %w", err), write.Close())
	}
	return &Deleter{write}, errors.Join(noteOrphan(process.Pid), process.Release())
}

// Delete removes a link as the function Delete does, but returns when the link is gone.
func (d *Deleter) Delete(index int) error {
	_, err := fmt.Fprintln(d.orders, index)
	for end := time.Now().Add(detachedWithin); err == nil && time.Now().Before(end); {
		// The question waits for the kernel's lock on all links, and so for the deletion: it is asked a few times at most.
		if _, err = netlink.LinkByIndex(index); IsNotFound(err) {
			return nil
		}
		time.Sleep(time.Millisecond / 5)
	}
	return Delete(index) // it was refused, or there is no second process
}

// Close lets the second process end when it has done what it was told.
func (d *Deleter) Close() { _ = d.orders.Close() }

// ServeDeleter is the second process, and ends it, if this is one.
func ServeDeleter() {
	if len(os.Args) == 0 || os.Args[0] != deleterName {
		return
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		if index, err := strconv.Atoi(orders.Text()); err == nil {
			_ = Delete(index) // the first process asks what came of it
		}
	}
	os.Exit(0)
}
