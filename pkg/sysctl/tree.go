package sysctl

import (
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// root is where procfs shows the sysctls: those below net/ are the ones of the
// namespace of the thread that looks.
const root = "/proc/sys"

// Tree is a directory of all sysctls: /proc/sys, or the same of a procfs of its
// own where that is faster. Like /proc/sys it shows what the namespace of the
// thread that looks has, not of the one that opened it.
type Tree struct {
	dir     int            // an open procfs, or unix.AT_FDCWD for the path
	path    string         // of the sysctls, from there
	passage *netns.Passage // to the namespace to look from, nil for the thread's own
}

// Open returns the tree to use in this call, for all that is read and set in it.
// Whatever stands in the way of a procfs of its own (seccomp, a kernel without
// fsopen, missing privileges, a user namespace), /proc/sys is there.
func Open() Tree {
	if netns.Crowded() && Writable() == nil {
		if dir, err := mountPrivate(); err == nil {
			return Tree{dir: dir, path: "sys"}
		}
	}
	return Tree{dir: unix.AT_FDCWD, path: root}
}

// OpenIn returns the tree as a thread in ns sees it. The caller's thread need not be
// there.
func OpenIn(ns *netns.NS) (Tree, error) {
	passage, err := ns.Passage()
	if err != nil {
		return Tree{}, err
	}
	t := Open()
	t.passage = passage
	return t, nil
}

// Close closes the tree, which must not be used any more.
func (t Tree) Close() {
	if t.passage != nil {
		t.passage.Close()
	}
	if t.dir != unix.AT_FDCWD {
		_ = unix.Close(t.dir)
	}
}

// readInto reads the beginning of the sysctl's file. The files of package os would
// do, for three more system calls each.
func (t Tree) readInto(b []byte, k Key) (int, error) {
	if t.passage != nil {
		return t.passage.Read(t.dir, t.file(k), b)
	}
	fd, err := unix.Openat(t.dir, t.file(k), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.Read(fd, b)
}

func (t Tree) file(k Key) string { return t.path + "/" + k.Path() }

// mountPrivate opens the root of a procfs that is mounted nowhere and ends when
// it is closed. Before Linux 5.8 it is the one that is mounted on /proc.
//
// For each network namespace that /proc/sys was used in, the kernel keeps a
// directory entry net/ipv4 (net/core, …) of its own. All of these are in one
// hash chain, which a lookup walks several times in a namespace that is not in
// it yet, or is at its end as the host's is.
//
//	other namespaces                   0    500   1,000   2,000
//	/proc/sys, in a new namespace     25    185     330     715 us
//	/proc/sys, on the host            21            865
//	a procfs of its own               89    125      85     120
//	the question whether to use it     5      5       5       5
//
// (Medians of 60, Linux 6.18; go test -bench FirstUse makes the first line and
// the end of the third.) The third line has the mount and its end in it, half of
// the time each. The end waits for the kernel's other CPUs, which takes longer
// when they are busy: a node with few namespaces does not need one. What is used
// by a procfs of its own leaves nothing behind in /proc/sys.
func mountPrivate() (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}
