package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Namespace is a network namespace that lives, other than our own.
type Namespace struct {
	Inode uint64   `json:"inode"`
	Paths []string `json:"paths"`         // where it is mounted
	PID   int      `json:"pid,omitempty"` // of the first process in it
}

// Path returns a path at which the namespace can be opened.
func (s *Namespace) Path() string {
	if len(s.Paths) > 0 {
		return s.Paths[0]
	}
	return fmt.Sprintf("/proc/%d/ns/net", s.PID)
}

// readNamespaces finds the namespaces that are mounted somewhere, or have processes.
func (n *Node) readNamespaces() {
	byInode := map[uint64]*Namespace{}
	of := func(inode uint64) *Namespace {
		if byInode[inode] == nil {
			byInode[inode] = &Namespace{Inode: inode, Paths: []string{}}
		}
		return byInode[inode]
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		n.couldNot("mounts of namespaces", err, "")
	}
	for line := range strings.Lines(string(mounts)) {
		if inode, path, ok := mounted(line); ok && !slices.Contains(of(inode).Paths, path) {
			of(inode).Paths = append(of(inode).Paths, path)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		n.couldNot("processes", err, "")
	}
	for _, path := range processes {
		target, err := os.Readlink(path)
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if inode, ok := inodeIn(target); err == nil && ok && (of(inode).PID == 0 || pid < of(inode).PID) {
			of(inode).PID = pid
		}
	}
	if own, err := os.Readlink("/proc/thread-self/ns/net"); err == nil {
		inode, _ := inodeIn(own)
		delete(byInode, inode)
	}
	for _, s := range byInode {
		slices.Sort(s.Paths)
		n.Namespaces = append(n.Namespaces, s)
	}
	slices.SortFunc(n.Namespaces, func(a, b *Namespace) int { return strings.Compare(a.Path(), b.Path()) })
	n.ids = map[int]*Namespace{}
	n.readIDs(n.Namespaces...)
}

// mounted reads a line of mountinfo (proc_pid_mountinfo(5)) about a network namespace.
func mounted(line string) (inode uint64, path string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return 0, "", false
	}
	inode, ok = inodeIn(fields[3])
	return inode, unescape(fields[4]), ok
}

// inodeIn reads the kernel's name of a network namespace, net:[4026531840].
func inodeIn(name string) (inode uint64, ok bool) {
	text, isNet := strings.CutPrefix(name, "net:[")
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return inode, isNet && err == nil
}

// unescape turns the octal numbers back that stand for characters in mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// readIDs notes under which numbers the host knows namespaces: a veth says by them where its other end is.
func (n *Node) readIDs(namespaces ...*Namespace) {
	host := netns.NewPair("", false)
	defer host.Close()
	for _, s := range namespaces {
		f, err := os.Open(s.Path())
		if err != nil {
			continue // it is gone
		}
		if id, err := host.Links().GetNetNsIdByFd(int(f.Fd())); err == nil && id >= 0 {
			n.ids[id] = s
		}
		_ = f.Close()
	}
}

// at returns the namespace at a path. It is nil without an error if there is none.
func (n *Node) at(path string) (*Namespace, error) {
	ns, err := netns.Open(path)
	if errors.Is(err, netns.ErrNotExist) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var file unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &file); err != nil {
		return nil, err
	}
	for _, s := range n.Namespaces {
		if s.Inode == file.Ino {
			return s, nil
		}
	}
	if own, err := netns.IsOwn(ns); err != nil || own {
		return nil, err
	}
	s := &Namespace{Inode: file.Ino, Paths: []string{path}} // made since, or mounted where we don't see it
	n.Namespaces = append(n.Namespaces, s)
	n.readIDs(s)
	return s, nil
}

// NamespaceNumbered returns the namespace that the host knows under a number, nil if there is none.
func (n *Node) NamespaceNumbered(id int) *Namespace { return n.ids[id] }
