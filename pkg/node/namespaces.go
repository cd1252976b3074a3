package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/result"
)

// Namespace is a network namespace that lives, other than our own.
type Namespace struct {
	Inode uint64   `json:"inode"`
	Paths []string `json:"paths"`         // where it is mounted
	PID   int      `json:"pid,omitempty"` // of a process in it
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
	mounts, err := os.ReadFile("/proc/self/mountinfo")
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
		if inode, ok := inodeIn(target); err == nil && ok && of(inode).PID == 0 {
			of(inode).PID, _ = strconv.Atoi(strings.Split(path, "/")[2])
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
	n.readIDs()
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

// readIDs notes under which numbers the host knows the namespaces: a veth says by them where its other end is.
func (n *Node) readIDs() {
	n.ids = map[int]*Namespace{}
	for _, s := range n.Namespaces {
		n.readID(s)
	}
}

func (n *Node) readID(s *Namespace) {
	f, err := os.Open(s.Path())
	if err != nil {
		return // it is gone
	}
	defer f.Close()
	if id, err := netlink.GetNetNsIdByFd(int(f.Fd())); err == nil && id >= 0 {
		n.ids[id] = s
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
	n.readID(s)
	return s, nil
}

// Interface is a link inside a namespace. All of it was written by the container, names and addresses too.
type Interface struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu"`
	Up        bool           `json:"up"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Interfaces looks into a namespace.
func (s *Namespace) Interfaces() (list []Interface, err error) {
	ns := netns.NewPair(s.Path(), false)
	defer ns.Close()
	if err := ns.Err(); err != nil {
		return nil, err
	}
	h, err := ns.LinksInside()
	if err != nil {
		return nil, err
	}
	links, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	addresses, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, l := range links {
		own := newLink(l)
		i := Interface{Name: own.Name, Kind: own.Kind, MAC: own.MAC, MTU: own.MTU, Up: own.Up, Addresses: []netip.Prefix{}}
		for _, a := range addresses {
			if a.LinkIndex == l.Attrs().Index {
				i.Addresses = append(i.Addresses, result.Prefix(*a.IPNet))
			}
		}
		list = append(list, i)
	}
	return list, nil
}
