package presence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Host is what lives on this host. It looks at each thing when that is asked for, and once.
type Host struct {
	boot       string
	notes      Notes
	namespaces map[uint64]*Namespace // by inode, with our own; nil until they are looked for
	own        uint64                // the inode of our own
	processes  []string              // their numbers
	unread     error                 // why not all of them could be seen
	isDeep     bool                  // other mount namespaces have been looked into
	looks      int                   // how often it has looked again at what had just ended
}

// NewHost returns this host. notes are those that ADDs have made.
func NewHost(notes Notes) *Host { return &Host{notes: notes} }

// Boot returns the id of this boot.
func (h *Host) Boot() string {
	if h.boot == "" {
		h.boot = bootID()
	}
	return h.boot
}

// Namespaces returns the namespaces that have processes or are mounted, other than our own, and why that may not be all. Those that are only
// mounted in other mount namespaces are among them once an attachment's was looked for in vain.
func (h *Host) Namespaces() ([]*Namespace, error) {
	h.look()
	list := []*Namespace{}
	for inode, s := range h.namespaces {
		if inode != h.own {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Namespace) int { return strings.Compare(a.Path(), b.Path()) })
	return list, h.unread
}

// Everywhere is Namespaces with those that are mounted in other mount namespaces alone.
func (h *Host) Everywhere() ([]*Namespace, error) {
	h.lookElsewhere()
	return h.Namespaces()
}

// Again finds out where namespaces are by now that could not be looked into: their processes may have ended or moved. Those that have ended are left out.
func (h *Host) Again(missed []*Namespace) (list []*Namespace, err error) {
	again := NewHost(h.notes)
	again.lookElsewhere()
	for _, s := range missed {
		if now := again.namespaces[s.Inode]; now != nil {
			list = append(list, now)
		}
	}
	return list, again.unread
}

// look finds the namespaces that are mounted here, or have processes.
func (h *Host) look() {
	if h.namespaces != nil {
		return
	}
	h.namespaces, h.own = map[uint64]*Namespace{}, inodeOf("/proc/thread-self/ns/net")
	h.unread = h.addMounts("/proc/thread-self", "")
	processes, err := os.ReadDir("/proc")
	h.couldNot("", err)
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		h.processes = append(h.processes, p.Name())
		inode, err := readInode("/proc/"+p.Name()+"/ns/net", "net")
		if h.couldNot(p.Name(), err); err != nil {
			continue
		}
		if s := h.namespace(inode); s.PID == 0 || pid < s.PID {
			s.PID = pid
		}
	}
}

func (h *Host) namespace(inode uint64) *Namespace {
	if h.namespaces[inode] == nil {
		h.namespaces[inode] = &Namespace{Inode: inode, Paths: []string{}}
	}
	return h.namespaces[inode]
}

// couldNot notes what could not be looked at of a process or thread below /proc, unless that has just ended. 1 is the host's, whoever may look at it.
func (h *Host) couldNot(process string, err error) {
	hasEnded := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.EACCES) && (inodeOf("/proc/"+process) == 0 || isOutside(process)) // the links in ns say EACCES of a process that has ended, too
	if err != nil && !hasEnded && process != "1" && !strings.HasPrefix(process, "1/") && h.unread == nil {
		h.unread = err
	}
}

// isOutside reports whether a process is in a user namespace whose ids are none in this one, which an ordinary user has made then (user_namespaces(7)). Such a
// process is in no network namespace that was made in this user namespace.
func isOutside(process string) bool {
	const none = "4294967295"
	own, theirs := idsOf("self"), idsOf(process)
	return len(own) == 3 && own[2] != none && len(theirs) >= 2 && theirs[1] == none
}

// idsOf returns the first words of a process's table of user ids: the first id there, what that is here, and how many there are.
func idsOf(process string) []string {
	ids, _ := os.ReadFile("/proc/" + process + "/uid_map")
	first, _, _ := strings.Cut(string(ids), "\n")
	return strings.Fields(first)
}

// lookElsewhere finds the namespaces that only threads are in which have left their process's, or outlived its first thread, and those that are mounted in
// other mount namespaces alone.
func (h *Host) lookElsewhere() {
	if h.isDeep {
		return
	}
	h.look()
	h.isDeep = true
	h.addThreads()
	own, err := viewOf("/proc/thread-self")
	h.couldNot("", err)
	seen := map[view]bool{own: true}
	for _, pid := range h.processes {
		process := "/proc/" + pid
		v, err := viewOf(process)
		if err != nil || seen[v] || v.owner != inodeOf("/proc/self/ns/user") {
			continue
		}
		seen[v] = true
		h.couldNot(pid, h.addMounts(process, process+"/root"))
	}
}

// view is what a process sees of mounts: those of its mount namespace below its root. A mount namespace is owned by the user namespace that it was made in:
// what users mount in one of their own is no runtime's, and can be whatever they like.
type view struct {
	mounts, owner    uint64
	rootDev, rootIno uint64
}

func viewOf(process string) (v view, err error) {
	mounts, err := os.Open(process + "/ns/mnt")
	if err != nil {
		return v, err
	}
	defer mounts.Close()
	var of, by, root unix.Stat_t
	if err := errors.Join(unix.Fstat(int(mounts.Fd()), &of), unix.Stat(process+"/root", &root)); err != nil {
		return v, err
	}
	if inodeOf("/proc/self/ns/user") != 0 { // else this kernel has one user namespace alone
		owner, err := unix.IoctlRetInt(int(mounts.Fd()), unix.NS_GET_USERNS) // ioctl_ns(2)
		if err == nil {
			err = errors.Join(unix.Fstat(owner, &by), unix.Close(owner))
		}
		if err != nil {
			return v, fmt.Errorf("the owner of %s: %w", mounts.Name(), err)
		}
	}
	return view{of.Ino, by.Ino, uint64(root.Dev), root.Ino}, nil
}

// addThreads adds the namespaces of threads. Where nothing else is in one, it goes by the thread's number, which leads to /proc/TID as that of a process does.
func (h *Host) addThreads() {
	for _, pid := range h.processes {
		threads, err := os.ReadDir("/proc/" + pid + "/task")
		h.couldNot(pid, err)
		for _, t := range threads {
			thread := pid + "/task/" + t.Name()
			inode, err := readInode("/proc/"+thread+"/ns/net", "net")
			if h.couldNot(thread, err); err != nil {
				continue
			}
			if s := h.namespace(inode); s.PID == 0 && len(s.Paths) == 0 {
				s.PID, _ = strconv.Atoi(t.Name())
			}
		}
	}
}

// addMounts adds the namespaces that are mounted where a process sees them. Those that are known have a path already.
func (h *Host) addMounts(process, root string) error {
	mounts, err := os.Open(process + "/mountinfo")
	if err != nil {
		return err
	}
	defer mounts.Close()
	all, err := netnsMounts(mounts)
	for _, m := range all {
		inode, ok := inodeIn(m.Root, "net")
		if !ok || root != "" && h.namespaces[inode] != nil {
			continue
		}
		s := h.namespace(inode)
		if root == "" && !s.isAt(m.Mountpoint) {
			continue // another mount covers it
		}
		s.root = root
		if !slices.Contains(s.Paths, root+m.Mountpoint) {
			s.Paths = append(s.Paths, root+m.Mountpoint)
			slices.Sort(s.Paths)
		}
	}
	return err
}

// netnsMounts returns the mounts of network namespaces that a list has (proc_pid_mountinfo(5)), and what it has of them before an error. The
// other lines can be a user's choice, as long and as odd as the kernel lets it: nobody reads them.
func netnsMounts(list io.Reader) (mounts []*mountinfo.Info, err error) {
	var lines strings.Builder
	const rootAt, after = 3, 5
	for r := bufio.NewReader(list); err == nil; {
		var line string
		line, err = r.ReadString('\n')
		if fields := strings.SplitN(line, " ", after); len(fields) == after && strings.HasPrefix(fields[rootAt], "net:[") {
			lines.WriteString(line)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	mounts, failed := mountinfo.GetMountsFromReader(strings.NewReader(lines.String()), nil)
	return mounts, errors.Join(err, failed)
}

// readInode reads a link to a namespace of a kind.
func readInode(link, kind string) (uint64, error) {
	target, err := os.Readlink(link)
	if err != nil {
		return 0, err
	}
	inode, ok := inodeIn(target, kind)
	if !ok {
		return 0, fmt.Errorf("%s leads to %s", link, target)
	}
	return inode, nil
}

// inodeIn reads the kernel's name of a namespace, net:[4026531840].
func inodeIn(name, kind string) (inode uint64, ok bool) {
	text, isKind := strings.CutPrefix(name, kind+":[")
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return inode, isKind && err == nil
}

// At returns the namespace at a path, and whether it is our own. It is nil without an error if there is none.
func (h *Host) At(path string) (s *Namespace, isOwn bool, err error) {
	ns, err := netns.Open(path)
	if errors.Is(err, netns.ErrNotExist) || errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer ns.Close()
	var file unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &file); err != nil {
		return nil, false, err
	}
	if s = h.namespaces[file.Ino]; s == nil {
		s = &Namespace{Inode: file.Ino, Paths: []string{path}} // made since, or not looked for yet
		if h.namespaces != nil {
			h.namespaces[file.Ino] = s
		}
	}
	isOwn, err = netns.IsOwn(ns)
	return s, isOwn, err
}

// find returns the namespace that was noted, wherever it is by now. It is nil without an error if it lives nowhere.
func (h *Host) find(n *Note) (*Namespace, error) {
	at, _, err := h.At(n.Netns)
	if err == nil && at != nil && at.Inode == n.Inode {
		if is, err := h.isNoted(at, n); is && err == nil {
			return at, nil
		}
	}
	h.look()
	if h.namespaces[n.Inode] == nil {
		h.lookElsewhere()
	}
	if s := h.namespaces[n.Inode]; s != nil {
		is, err := h.isNoted(s, n)
		switch {
		case is:
			return s, nil
		case errors.Is(err, netns.ErrNotExist) && h.looks < 5: // another one may have got its inode at once
			again := NewHost(h.notes)
			again.looks = h.looks + 1
			return again.find(n)
		case err != nil:
			return nil, err
		}
	}
	if h.unread == nil && n.PIDs != inodeOf("/proc/self/ns/pid") {
		return nil, errors.New("the processes of the host can't be seen from here")
	}
	return nil, h.unread
}

// isNoted reports whether a namespace with the inode of one that was noted is that one: inodes are used again. Before Linux 5.14 nothing else tells
// them apart, and it is the one of the last ADD that has noted the inode.
func (h *Host) isNoted(s *Namespace, n *Note) (bool, error) {
	if n.Cookie != 0 {
		if s.cookie == 0 {
			pair, err := s.open()
			if err != nil {
				return false, err
			}
			defer pair.Close()
			if _, s.cookie, err = identify(pair); err != nil {
				return false, err
			}
		}
		return s.cookie == n.Cookie, nil
	}
	all, err := h.notes.All()
	for _, later := range all {
		if later.Inode == n.Inode && later.Boot == n.Boot && later.Netns != n.Netns && later.Uptime > n.Uptime {
			return false, nil
		}
	}
	return true, err
}
