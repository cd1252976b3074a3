// Package detach deletes links by a second process of this binary, which waits in the place of the first one until the kernel has
// freed the link's memory: that takes many times as long as all else in a DEL.
package detach

import (
	"cmp"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
)

// Deleter is a second process that deletes links for the calls of one plugin. It implements plugin.Deleter.
type Deleter struct {
	how   string            // CNIBOX_DETACH
	trace func(step string) // nil if nobody is to know

	started chan struct{} // closed when it is started, or could not be; nil until Start
	process int           // a socket, its standard input and output: it ends when that is closed. -1 if it could not be started
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
	d.started, d.process = make(chan struct{}), -1
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
func startProcess() int {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	ours, theirs := ends[0], ends[1]
	defer unix.Close(theirs)
	wait := unix.NsecToTimeval(answerTime.Nanoseconds())
	err = unix.SetsockoptTimeval(ours, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	if err == nil {
		err = start(uintptr(theirs))
	}
	if err != nil {
		_ = unix.Close(ours)
		return -1
	}
	return ours
}

// start starts it with a socket. (os.StartProcess would start one more process, to see what the kernel can.)
func start(socket uintptr) error {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{processName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{socket, socket, socket}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	return noteOrphan(pid)
}

// Delete removes a link of a namespace, nil is the host's, as link.Delete does with the namespace's handle, but returns when the link is gone.
// Without a second process it waits.
func (d *Deleter) Delete(h *netlink.Handle, namespace ns.NetNS, index int) error {
	d.Start()
	if <-d.started; d.process < 0 {
		return link.Delete(h, index)
	}
	end := time.Now().Add(answerTime)
	var rights []byte
	if namespace != nil {
		rights = unix.UnixRights(int(namespace.Fd()))
	}
	begun := 0
	err := unix.Sendmsg(d.process, strconv.AppendInt(nil, int64(index), 10), rights, nil, unix.MSG_NOSIGNAL)
	if err == nil {
		begun, err = unix.Read(d.process, make([]byte, 1))
	}
	for pause := unix.NsecToTimespec(50_000); begun == 1 && err == nil && time.Now().Before(end); {
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
	if <-d.started; d.process >= 0 {
		_ = unix.Close(d.process)
	}
}

// Serve is the second process, and ends it, if this is one. It is told an index in each message, and the namespace beside it, if that is not the
// host's.
func Serve() {
	if len(os.Args) == 0 || os.Args[0] != processName {
		return
	}
	order, rights := make([]byte, 16), make([]byte, unix.CmsgSpace(4))
	for {
		n, beside, _, _, err := unix.Recvmsg(0, order, rights, unix.MSG_CMSG_CLOEXEC)
		if err != nil || n == 0 {
			os.Exit(0)
		}
		index, err := strconv.Atoi(string(order[:n]))
		if err != nil {
			os.Exit(1)
		}
		h, err := linksOf(rights[:beside])
		if err != nil {
			os.Exit(1) // the first process deletes it itself
		}
		_, _ = unix.Write(1, []byte{0}) // that it begins
		_ = link.Delete(h, index)       // the first process asks what came of it
		h.Close()
	}
}

// linksOf returns the links of the namespace that came with a message, or the host's.
func linksOf(beside []byte) (*netlink.Handle, error) {
	if len(beside) == 0 {
		return &netlink.Handle{}, nil
	}
	messages, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return nil, err
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	defer unix.Close(files[0])
	return netlink.NewHandleAt(netns.NsHandle(files[0]), unix.NETLINK_ROUTE)
}
