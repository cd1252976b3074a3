package socket

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listener lets root in, and nobody else.
type listener struct {
	*net.UnixListener
	log      *slog.Logger
	silent   sync.WaitGroup // clients that have not said what they want
	said     time.Time      // when it was last said that a client was refused
	refused  int            // clients since then
	refusing chan struct{}  // has an entry for each client that is told so
}

// Accept returns the next client that is root.
func (l *listener) Accept() (net.Conn, error) {
	for {
		client, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(client)
		if err == nil && peer.Uid == 0 {
			l.silent.Add(1)
			return &conn{UnixConn: client, peer: peer, speak: sync.OnceFunc(l.silent.Done)}, nil
		}
		l.warn(peer)
		l.refuse(client)
	}
}

// refuse answers a client whatever it says, and closes. Of many at once, most are closed without an answer.
func (l *listener) refuse(client *net.UnixConn) {
	select {
	case l.refusing <- struct{}{}:
	default:
		_ = client.Close()
		return
	}
	go func() {
		defer func() { <-l.refusing }()
		defer client.Close()
		_ = client.SetDeadline(time.Now().Add(time.Second))
		_, _ = client.Read(make([]byte, 4096)) // curl takes a connection that ends before it has asked for none
		const text = "only root may use this socket\n"
		_, _ = fmt.Fprintf(client, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	}()
}

// warn says that a client was refused, once in ten seconds. The name of its program is the client's choice: a help for who reads the log, no
// more.
func (l *listener) warn(peer unix.Ucred) {
	l.refused++
	if time.Since(l.said) < 10*time.Second {
		return
	}
	program, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", peer.Pid))
	l.log.Warn("refused a client that is not root", "socket", l.Addr().String(), "uid", peer.Uid, "pid", peer.Pid,
		"program", strings.TrimSpace(string(program)), "clients", l.refused)
	l.said, l.refused = time.Now(), 0
}

// conn is a client's connection. The first descriptor that it passes is kept for the request.
type conn struct {
	*net.UnixConn
	peer  unix.Ucred
	speak func() // is called when the client has said what it wants, or goes

	mu   sync.Mutex
	file *os.File
}

// address is a connection's local address, which net/http hands to the handler: that is how the handler finds its client.
type address struct {
	net.Addr
	client *conn
}

// LocalAddr returns the address.
func (c *conn) LocalAddr() net.Addr { return address{c.UnixConn.LocalAddr(), c} }

// clientOf returns the connection by which a request came.
func clientOf(r *http.Request) *conn {
	if a, is := r.Context().Value(http.LocalAddrContextKey).(address); is {
		return a.client
	}
	return &conn{speak: func() {}} // of a test
}

// Peer returns who sent a request.
func Peer(r *http.Request) unix.Ucred { return clientOf(r).peer }

// TakeFile returns the descriptor that came with a request, nil if none did. It is the caller's to close.
func TakeFile(r *http.Request) *os.File { return clientOf(r).popFile() }

// Read reads what the client says, with what it passes.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	oob := make([]byte, unix.CmsgSpace(4)) // of one descriptor: the kernel closes what does not fit
	n, oobn, _, _, err := c.ReadMsgUnix(p, oob)
	if oobn > 0 {
		c.receive(oob[:oobn])
	}
	return n, err
}

// receive keeps the first descriptor, and closes the others.
func (c *conn) receive(oob []byte) {
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

// popFile returns the descriptor, which is the caller's to close from then on.
func (c *conn) popFile() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.file
	c.file = nil
	return f
}

// Close closes the connection, and what came by it.
func (c *conn) Close() error {
	c.speak()
	if f := c.popFile(); f != nil {
		_ = f.Close()
	}
	return c.UnixConn.Close()
}

// peerOf returns who has connected, as the kernel knows it: root of another user namespace is not uid 0.
func peerOf(c *net.UnixConn) (peer unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		var p *unix.Ucred
		if p, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); asked == nil {
			peer = *p
		}
	})
	return peer, errors.Join(err, asked)
}
