package socket

import (
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

// most is how many clients are listened to or answered at once.
const most = 256

// listener lets root in, and nobody else. When there are too many clients, the one goes that has taken longest to say what it wants: so
// clients that say nothing can't keep others out.
type listener struct {
	*net.UnixListener
	log *slog.Logger

	said    time.Time // when it was last said that a client was refused
	refused int       // clients since then

	answering chan struct{} // has an entry for each client that is being refused

	mu      sync.Mutex
	reading map[*conn]time.Time // those that have not said what they want, by when they came
	serving map[*conn]bool
}

func newListener(l *net.UnixListener, log *slog.Logger) *listener {
	return &listener{UnixListener: l, log: log, answering: make(chan struct{}, 16), reading: map[*conn]time.Time{}, serving: map[*conn]bool{}}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		client, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		c := &conn{UnixConn: client, from: l}
		if c.peer, err = peerOf(client); err != nil || c.peer.Uid != 0 {
			l.warn("refused a client that is not root", c.peer)
			l.refuse(client, http.StatusForbidden, "only root may use this socket\n")
			continue
		}
		if l.admit(c) {
			return c, nil
		}
		l.warn("refused a client: too many are being served", c.peer)
		l.refuse(client, http.StatusServiceUnavailable, "too many clients: try again later\n")
	}
}

// admit makes room for a client, if it can.
func (l *listener) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.serving) >= most {
		return false
	}
	if len(l.reading)+len(l.serving) >= most {
		var slowest *conn
		for r, came := range l.reading {
			if slowest == nil || came.Before(l.reading[slowest]) {
				slowest = r
			}
		}
		delete(l.reading, slowest)
		_ = slowest.UnixConn.Close() // its reader ends with an error, and closes the rest
	}
	l.reading[c] = time.Now()
	return true
}

// serve notes that a client has said what it wants.
func (l *listener) serve(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.reading[c]; is {
		delete(l.reading, c)
		l.serving[c] = true
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reading, c)
	delete(l.serving, c)
}

// lastWords is how long clients that have connected have to say what they want when listening ends.
const lastWords = time.Second

// drain waits, when listening has ended, until no client is left that has not said what it wants. Those that take too long have to come again.
func (l *listener) drain() {
	end := time.Now().Add(lastWords)
	l.mu.Lock()
	for c := range l.reading {
		_ = c.SetReadDeadline(end)
	}
	l.mu.Unlock()
	for l.isAwaiting() && time.Now().Before(end.Add(lastWords)) {
		time.Sleep(time.Millisecond)
	}
}

// isAwaiting reports whether there are clients that have not said what they want.
func (l *listener) isAwaiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.reading) > 0
}

// warn says that a client was refused, once in ten seconds.
func (l *listener) warn(text string, peer unix.Ucred) {
	l.refused++
	if time.Since(l.said) < 10*time.Second {
		return
	}
	l.log.Warn(text, "socket", l.Addr().String(), "uid", peer.Uid, "pid", peer.Pid, "program", program(peer), "clients", l.refused)
	l.said, l.refused = time.Now(), 0
}

// refuse answers a client whatever it says, and closes. Of many at once, most are closed without an answer.
func (l *listener) refuse(c *net.UnixConn, status int, text string) {
	select {
	case l.answering <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	go func() {
		defer func() { <-l.answering }()
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Read(make([]byte, 4096)) // programs such as curl take a connection that ends before that for none
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, http.StatusText(status), len(text), text)
	}()
}

// program returns what the client says that it is called: a help for who reads the log, no more.
func program(peer unix.Ucred) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", peer.Pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
