package netlab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// node is what the namespaces of one Host share: the mount namespace, and the thread that keeps it.
//
// The thread lives as long as the Host does and is the parent of every process started in it. The kernel can be asked
// to kill a process when the thread that started it ends, so no process outlives the test process, however it dies.
type node struct {
	mntns     *os.File
	hostNetns *os.File
	work      chan func()
	kept      sync.Map      // the open network namespaces (*os.File) that a process keeps until the test ends
	patience  time.Duration // with what is left to end by itself
	init      *exec.Cmd     // the first process of the node's own PID namespace, nil if it has none
	pidns     *os.File

	mu      sync.Mutex
	servers map[*os.File][]io.Closer // of each network namespace
}

// serves notes a server of a network namespace. It ends with the namespace or the test.
func (n *node) serves(t testing.TB, netns *os.File, server io.Closer) {
	t.Cleanup(func() { _ = server.Close() })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[netns] = append(n.servers[netns], server)
}

// endServers ends those of a network namespace, whose sockets would keep it.
func (n *node) endServers(netns *os.File) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.servers[netns] {
		_ = s.Close()
	}
	delete(n.servers, netns)
}

// newNode starts the thread in new network and mount namespaces and runs prepare on it.
func newNode(prepare func() error) (*node, error) { return newNodeIn(nil, prepare) }

// newNodeIn is newNode for a network namespace that is there.
func newNodeIn(netns *os.File, prepare func() error) (*node, error) {
	n := &node{work: make(chan func()), servers: map[*os.File][]io.Closer{}, patience: Patience}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends when the work does
		err := n.start(netns, prepare)
		started <- err
		if err != nil {
			return
		}
		for job := range n.work {
			job()
		}
	}()
	return n, <-started
}

func (n *node) start(netns *os.File, prepare func() error) error {
	err := unshareNode()
	if err == nil && netns != nil {
		err = setns(netns, unix.CLONE_NEWNET)
	}
	if err == nil {
		err = prepare()
	}
	if err != nil {
		return err
	}
	if n.hostNetns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	n.mntns, err = os.Open("/proc/thread-self/ns/mnt")
	return err
}

// on runs job on the thread, in the given network namespace of the node, one job at a time. A job must be short: it
// holds up all others.
func (n *node) on(netns *os.File, job func() error) error {
	done := make(chan error)
	n.work <- func() {
		err := setns(netns, unix.CLONE_NEWNET)
		if err == nil {
			err = errors.Join(job(), setns(n.hostNetns, unix.CLONE_NEWNET))
		} else {
			err = fmt.Errorf("enter a network namespace (deleted already?): %w", err)
		}
		done <- err
	}
	return <-done
}

// close lets the thread end, and with it the namespaces, unless a process is still in them. It returns a description of
// every process that was; they have been killed.
func (n *node) close() (strays []string) {
	strays = n.killStrays()
	n.endInit()
	close(n.work)
	n.mntns.Close()
	n.hostNetns.Close()
	return strays
}

// killStrays kills the processes in the node's mount namespace. Only what was started in the node can be there. What a
// DEL leaves to the kernel in a process of its own ends by itself, some ten milliseconds later, or more on a busy machine.
func (n *node) killStrays() (strays []string) {
	var pids []int
	_ = AwaitFor(n.patience, func() error {
		if pids = n.processes(); len(pids) > 0 {
			return errors.New("processes are left")
		}
		return nil
	})
	for _, pid := range pids {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if unix.Kill(pid, unix.SIGKILL) == nil {
			strays = append(strays, strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	return strays
}

// Kill kills all processes of the Host but the first of its own, if it has those.
func (h *Host) Kill() {
	for _, pid := range h.node.processes() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// processes lists the processes in the node's mount namespace, but this one and the node's init.
func (n *node) processes() (pids []int) {
	var st unix.Stat_t
	if err := unix.Fstat(int(n.mntns.Fd()), &st); err != nil {
		return nil
	}
	ours := fmt.Sprintf("mnt:[%d]", st.Ino)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || n.init != nil && pid == n.init.Process.Pid {
			continue
		}
		if target, err := os.Readlink("/proc/" + entry.Name() + "/ns/mnt"); err == nil && target == ours {
			pids = append(pids, pid)
		}
	}
	return pids
}
