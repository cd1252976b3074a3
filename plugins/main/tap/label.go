package tap

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeTap makes an open file of /dev/net/tun a tap of the calling thread's namespace.
func makeTap(fd int, name string, flags uint16) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(flags)
	return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
}

// A tap has the SELinux context of the process that makes it, and a process with several threads can't change its own: a second
// process of this binary has it from the start, and makes the tap.

// labelledName is what the second process is called by.
const labelledName = "cnibox-make-tap"

// makeLabelledTap is makeTap with a SELinux context for the tap.
func makeLabelledTap(label string, fd int, name string, flags uint16) error {
	if err := setExecContext(label); err != nil {
		return fmt.Errorf("selinuxContext %q: %w", label, err)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{labelledName, name, strconv.Itoa(int(flags))}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{uintptr(fd)},
	})
	if err = errors.Join(err, setExecContext("")); err != nil {
		return fmt.Errorf("run a process with selinuxContext %q: %w", label, err)
	}
	var status unix.WaitStatus
	for _, err = unix.Wait4(pid, &status, 0, nil); err == unix.EINTR; {
		_, err = unix.Wait4(pid, &status, 0, nil)
	}
	switch {
	case err != nil:
		return err
	case !status.Exited():
		return fmt.Errorf("the process with selinuxContext %q was killed by signal %d", label, status.Signal())
	case status.ExitStatus() != 0:
		return unix.Errno(status.ExitStatus())
	}
	return nil
}

// setExecContext sets the SELinux context of what the calling thread executes; "" is the usual one.
func setExecContext(label string) error {
	fd, err := unix.Open("/proc/thread-self/attr/exec", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(label))
	return err
}

// ServeLabelled is the second process, and ends it, if this is one. Its standard input is the file, its exit status the error.
func ServeLabelled() {
	if len(os.Args) != 3 || os.Args[0] != labelledName {
		return
	}
	flags, _ := strconv.Atoi(os.Args[2])
	var errno unix.Errno
	if err := makeTap(0, os.Args[1], uint16(flags)); err != nil && !errors.As(err, &errno) {
		errno = unix.EINVAL
	}
	os.Exit(int(errno))
}
