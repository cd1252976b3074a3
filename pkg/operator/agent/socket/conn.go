package socket

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// conn is a connection of a client that may be root. The first descriptor that it passes is kept for the request.
type conn struct {
	*net.UnixConn
	peer unix.Ucred
	from *listener

	mu   sync.Mutex
	file *os.File
}

// descriptors is the room for what is passed with one message. The kernel closes what does not fit.
var descriptors = unix.CmsgSpace(4)

func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	oob := make([]byte, descriptors)
	n, oobn, _, _, err := c.ReadMsgUnix(p, oob)
	if oobn > 0 {
		c.keep(oob[:oobn])
	}
	return n, err
}

// keep keeps the first descriptor, and closes the others.
func (c *conn) keep(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		passed, _ := unix.ParseUnixRights(&m)
		for _, fd := range passed {
			if c.file == nil {
				c.file = os.NewFile(uintptr(fd), "passed with a request")
			} else {
				_ = unix.Close(fd)
			}
		}
	}
}

// take returns the descriptor, which is the caller's to close from then on.
func (c *conn) take() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.file
	c.file = nil
	return f
}

func (c *conn) Close() error {
	c.from.forget(c)
	if f := c.take(); f != nil {
		_ = f.Close()
	}
	return c.UnixConn.Close()
}

// peerOf returns who has connected, as the kernel knows it: root of another user namespace is not uid 0.
func peerOf(c *net.UnixConn) (unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return unix.Ucred{}, err
	}
	if failed != nil {
		return unix.Ucred{}, failed
	}
	return *peer, nil
}
