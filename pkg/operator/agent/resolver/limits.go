package resolver

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Bounds, so that no container keeps the resolver from others. A container is known by its id, or by its address before it has asked.
const (
	mostForwarded     = 2000 // questions for the node's servers at once
	mostForwardedOf   = 50   // of one container
	mostConnections   = 512
	mostConnectionsOf = 16

	window   = 100 * time.Millisecond
	mostInIt = 200 // questions of one container by UDP in a window

	silence = 3 * time.Second // how long a TCP client may say nothing

	mostLogged = 10 // names of one container that were refused, in loggedIn
	loggedIn   = time.Minute
)

// shares count what is under way, in all and of each container.
type shares struct {
	most, mostOf int

	mu  sync.Mutex
	all int
	of  map[string]int
}

// take reports whether there is room for one more, which is given back later.
func (s *shares) take(from string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.most || s.of[from] >= s.mostOf {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[from]++
	return true
}

func (s *shares) giveBack(from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[from]--; s.of[from] == 0 {
		delete(s.of, from)
	}
}

// addressOf returns the address of who is at the other end, or of this end.
func addressOf(a net.Addr) netip.Addr {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.UDPAddr:
		ap = a.AddrPort()
	case *net.TCPAddr:
		ap = a.AddrPort()
	}
	return ap.Addr().Unmap().WithZone("")
}

// reader drops a container's packets that are more than its share before anything is done for them: they must not fill the queue of the socket, which is
// that of all containers.
type reader struct {
	dns.Reader
	isAsker func(netip.Addr) bool
	dropped func()
	begin   time.Time
	count   map[netip.Addr]int // in this window
}

// ReadUDP implements dns.Reader.
func (r *reader) ReadUDP(conn *net.UDPConn, timeout time.Duration) ([]byte, *dns.SessionUDP, error) {
	for {
		packet, session, err := r.Reader.ReadUDP(conn, timeout)
		if err != nil {
			return packet, session, err
		}
		from := addressOf(session.RemoteAddr())
		if !r.isAsker(from) {
			from = netip.Addr{} // all others share what is one container's
		}
		if now := time.Now(); now.Sub(r.begin) > window {
			r.begin, r.count = now, map[netip.Addr]int{}
		}
		if r.count[from]++; r.count[from] <= mostInIt {
			return packet, session, nil
		}
		r.dropped()
	}
}

// listener closes connections that are more than a container's share.
type listener struct {
	net.Listener
	shares *shares
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				<-time.After(window) // such as that there are no more file descriptors, in which case it would be asked again at once
			}
			return nil, err
		}
		from := addressOf(conn.RemoteAddr()).String()
		if l.shares.take(from) {
			return &counted{Conn: conn, end: sync.OnceFunc(func() { l.shares.giveBack(from) })}, nil
		}
		_ = conn.Close()
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.end()
	return c.Conn.Close()
}

// refusals logs which names containers were refused, and of each container not more than its share.
type refusals struct {
	mu    sync.Mutex
	begin time.Time
	of    map[plugin.Key]map[string]bool // in this minute
}

func (r *refusals) log(log *slog.Logger, of *names.Record, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.begin) > loggedIn {
		r.begin, r.of = now, map[plugin.Key]map[string]bool{}
	}
	logged := r.of[of.Key]
	if logged == nil {
		logged = map[string]bool{}
		r.of[of.Key] = logged
	}
	if logged[name] || len(logged) >= mostLogged {
		return
	}
	logged[name] = true
	log.Info("a name is refused that is not on the container's list", "container", of.Key.String(), "name", name)
}
