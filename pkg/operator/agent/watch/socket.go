package watch

import (
	"context"
	"errors"

	"github.com/mdlayher/socket"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// room is how many bytes may wait in a socket: more than what 1,000 links lose in the moment that a burst takes.
const room = 16 << 20

// listener hears what the kernel tells groups of a netlink family.
type listener struct {
	conn        *socket.Conn
	buffer, oob []byte
}

// listen opens one in the network namespace of the calling thread. Without a filter it hears everything. With everywhere it also hears of the
// namespaces that have a number for this one.
func listen(family int, groups uint32, filter []bpf.Instruction, everywhere bool) (l *listener, err error) {
	conn, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, family, "netlink", nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if filter != nil {
		raw, err := bpf.Assemble(filter)
		if err != nil {
			return nil, err
		}
		if err := conn.SetBPF(raw); err != nil {
			return nil, err
		}
	}
	if everywhere {
		if err := conn.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
			return nil, err
		}
	}
	const largest = 64 << 10 // more than the kernel sends at once
	err = errors.Join(conn.SetReadBuffer(room), conn.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}))
	return &listener{conn, make([]byte, largest), make([]byte, unix.CmsgSpace(4)*2)}, err
}

// errLost says that more has come than fits into the socket.
var errLost = errors.New("events were lost")

// read waits for what the kernel tells next, and returns it with the number of the namespace that it is about, hostNumber for our own. The
// bytes are valid until the next call.
func (l *listener) read() (b []byte, nsid int, err error) {
	for {
		n, oobn, _, from, err := l.conn.Recvmsg(context.Background(), l.buffer, l.oob, 0)
		if errors.Is(err, unix.ENOBUFS) {
			return nil, 0, l.discard()
		}
		if err != nil {
			return nil, 0, err
		}
		// Whoever is root in a container can send to these groups, too.
		if kernel, ok := from.(*unix.SockaddrNetlink); ok && kernel.Pid == 0 {
			return l.buffer[:n], namespaceOf(l.oob[:oobn]), nil
		}
	}
}

// discard drops what is in the socket: the kernel does not say a second time that something was lost before the socket was empty.
func (l *listener) discard() error {
	err := l.conn.ReadFunc(context.Background(), "recvmsg", func(fd int) error {
		for {
			_, _, err := unix.Recvfrom(fd, l.buffer, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				return nil
			}
			if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	return errLost
}

// hostNumber stands for our own namespace, which has none.
const hostNumber = -1

// namespaceOf reads the number of a namespace from the control messages that came with a message.
func namespaceOf(oob []byte) int {
	controls, _ := unix.ParseSocketControlMessage(oob)
	for _, c := range controls {
		if c.Header.Level == unix.SOL_NETLINK && c.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(c.Data) >= 4 {
			return int(number(c.Data))
		}
	}
	return hostNumber
}
