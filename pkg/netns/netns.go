// Package netns says what containernetworking/plugins' pkg/ns does not: that there is no namespace at a path, for whatever reason,
// and whether one is our own.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// ErrNotExist says that no network namespace is at a path: there is nothing, or something else, such as the plain file on which
// one was mounted before.
var ErrNotExist = errors.New("no network namespace there")

// Open opens the network namespace at a path.
func Open(path string) (ns.NetNS, error) {
	n, err := ns.GetNS(path)
	if err != nil {
		return nil, notOpened(path, err)
	}
	if kind, err := unix.IoctlRetInt(int(n.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET { // ioctl_nsfs(2)
		return nil, errors.Join(fmt.Errorf("%w: %s is something else", ErrNotExist, path), n.Close())
	}
	return n, nil
}

func notOpened(path string, err error) error {
	missing := unix.Access(path, unix.F_OK)
	switch {
	case errors.As(err, new(ns.NSPathNotNSErr)):
		return fmt.Errorf("%w: %s is something else", ErrNotExist, path)
	case errors.Is(missing, unix.ENOENT) || errors.Is(missing, unix.ENOTDIR) || errors.Is(missing, unix.ESRCH):
		return fmt.Errorf("%w: %s: %w", ErrNotExist, path, missing)
	}
	return fmt.Errorf("open network namespace %s: %w", path, err)
}

// IsOwn reports whether a namespace is that of the calling thread.
func IsOwn(n ns.NetNS) (bool, error) {
	const self = "/proc/thread-self/ns/net"
	var ours, theirs unix.Stat_t
	if err := errors.Join(unix.Stat(self, &ours), unix.Fstat(int(n.Fd()), &theirs)); err != nil {
		return false, fmt.Errorf("compare %s with our own network namespace: %w", n.Path(), err)
	}
	return ours.Dev == theirs.Dev && ours.Ino == theirs.Ino, nil
}

// OwnCookie returns the number of the calling thread's namespace that no other one of this boot has, 0 before Linux 5.14 (SO_NETNS_COOKIE).
func OwnCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("ask which network namespace this is: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return 0, fmt.Errorf("ask which network namespace this is: %w", err)
	}
	return cookie, nil
}

// Same reports whether two paths lead to one network namespace, such as those below /run and /var/run.
func Same(a, b string) bool {
	if a == b {
		return true
	}
	var one, other unix.Stat_t
	return unix.Stat(a, &one) == nil && unix.Stat(b, &other) == nil && one.Dev == other.Dev && one.Ino == other.Ino
}

// InNew does something in a new network namespace, which ends with it.
func InNew(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// CheckEntry reports whether this process may enter namespaces and change their network, for STATUS.
func CheckEntry() error {
	if err := checkCapability(unix.CAP_SYS_ADMIN); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("network namespaces can't be entered: %v", err),
			"run the container runtime as root with CAP_SYS_ADMIN (setns(2))")
	}
	return CheckAdmin()
}

// CheckAdmin reports whether this process may change the network of its own namespace, for STATUS.
func CheckAdmin() error {
	if err := checkCapability(unix.CAP_NET_ADMIN); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("networks can't be changed: %v", err),
			"run the container runtime as root with CAP_NET_ADMIN in the host's network namespace")
	}
	return nil
}

// checkCapability makes sure that this process has a capability in its network namespace: that its user namespace, or one below, owns it, which the
// kernel shows to nobody else (ioctl_ns(2)). A kernel without user namespaces shows it to nobody at all.
func checkCapability(capability int) error {
	header, sets := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	if sets[capability/32].Effective&(1<<(capability%32)) == 0 {
		return unix.EPERM
	}
	if _, err := os.Stat("/proc/self/ns/user"); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	own, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer own.Close()
	owner, err := unix.IoctlRetInt(int(own.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return err
	}
	return unix.Close(owner)
}
