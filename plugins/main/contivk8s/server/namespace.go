package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/agent/socket"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// namespace is the container's, open for as long as the request lasts.
type namespace struct {
	ns.NetNS
	path     string // as the runtime knows it: what is kept
	isPassed bool   // came as a file, so that the path need not lead to it from here
}

// badNetns is an error about a request's namespace.
func badNetns(format string, args ...any) error {
	return plugin.CodeErrorf(types.ErrInvalidNetNS, "the runtime must make the namespace before it calls ADD, and keep it at its path", format, args...)
}

// openNamespace opens the namespace of a request, once: the file that came with it, or else the path. It is a network namespace, and not
// the agent's own.
func openNamespace(r *http.Request, q contiv.Request) (n *namespace, err error) {
	path := cmp.Or(r.Header.Get(contiv.NetnsHeader), q.Netns)
	file := socket.TakeFile(r)
	if file == nil {
		n, err = openFrom(q.Netns, path)
	} else {
		defer file.Close()
		n, err = openFrom(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), path)
	}
	if err != nil {
		return nil, err
	}
	n.isPassed = file != nil
	if isOf(n.path, int(socket.Peer(r).Pid)) {
		if err := n.findPath(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// openAt opens the namespace at a path.
func openAt(path string) (*namespace, error) { return openFrom(path, path) }

// openFrom opens the namespace at a path that is not the one that is kept.
func openFrom(from, recorded string) (*namespace, error) {
	for _, path := range []string{from, recorded} {
		if !filepath.IsAbs(path) || len(path) >= unix.PathMax {
			return nil, badNetns("CNI_NETNS: %q is no path of a network namespace", path)
		}
	}
	open, err := netns.Open(from)
	if err != nil {
		return nil, badNetns("CNI_NETNS: %w", err)
	}
	own, err := netns.IsOwn(open)
	if err == nil && own {
		err = badNetns("CNI_NETNS %s is the agent's own network namespace", recorded)
	}
	if err != nil {
		return nil, errors.Join(err, open.Close())
	}
	return &namespace{NetNS: open, path: recorded}, nil
}

// isOf reports whether a path is that of a process, or of a thread of it. contiv's own shim enters the namespace and names itself.
func isOf(path string, pid int) bool {
	rest, is := strings.CutPrefix(filepath.Clean(path), "/proc/")
	number, _, _ := strings.Cut(rest, "/")
	thread, err := strconv.Atoi(number)
	if !is || err != nil || pid <= 0 {
		return false
	}
	_, noThread := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, thread))
	return thread == pid || noThread == nil
}

// findPath finds a path of the namespace that stays when the client has ended.
func (n *namespace) findPath() error {
	paths, err := filepath.Glob("/run/netns/*")
	if err != nil {
		return err
	}
	for _, path := range paths {
		n.path = path
		if same, err := n.isAtPath(); same && err == nil {
			return nil
		}
	}
	return badNetns("the client names its own process for the network namespace, and nothing in /run/netns is it; use cnibox' contivk8s, which passes it on with its path")
}

// isAtPath reports whether the path leads to the namespace from here. That another one is there is an error; that nothing is, is one unless
// the namespace was passed as a file: the client may have other mounts than we.
func (n *namespace) isAtPath() (bool, error) {
	there, err := netns.Open(n.path)
	if err != nil && n.isPassed && errors.Is(err, netns.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, badNetns("CNI_NETNS: %w", err)
	}
	defer there.Close()
	var file, open unix.Stat_t
	if err := errors.Join(unix.Fstat(int(there.Fd()), &file), unix.Fstat(int(n.Fd()), &open)); err != nil {
		return false, badNetns("compare what is at CNI_NETNS %s with the namespace of the request: %w", n.path, err)
	}
	if file.Dev != open.Dev || file.Ino != open.Ino {
		return false, badNetns("another network namespace is at CNI_NETNS %s than the one of the request", n.path)
	}
	return true, nil
}

// openPath is where plugins find the open file.
func (n *namespace) openPath() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }
