package resolver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/pkg/names"
)

// patience is how long the node's servers have for a question in all. A container's C library asks again after five seconds.
const patience = 4 * time.Second

// packetSize is the largest answer by UDP, there and here: what passes everywhere in one piece.
const packetSize = 1232

// upstream asks the node's servers.
type upstream struct {
	isOwn func(netip.Addr) bool // reports whether this resolver listens there

	mu      sync.Mutex
	version names.Version
	servers []netip.Addr
	first   int // which is asked first: the one that has answered last
}

// list returns the node's servers in the order in which they are asked. Their file is read when it has changed. The resolver asks neither
// itself nor the container that asks, which may be the node's server.
func (u *upstream) list(from netip.Addr) (list []netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := names.CurrentVersion(); u.servers == nil || !now.Is(u.version) {
		servers := names.Servers()
		if !slices.Equal(servers, u.servers) {
			u.first = 0
		}
		u.version, u.servers = now, servers
	}
	for i := range u.servers {
		if s := u.servers[(u.first+i)%len(u.servers)]; s != from && !u.isOwn(s) {
			list = append(list, s)
		}
	}
	return list
}

// prefer has a server asked first from now on.
func (u *upstream) prefer(server netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.first = max(0, slices.Index(u.servers, server))
}

// ask asks one server after the other until one has an answer. That of a server which can't or won't say is kept for the case that none has a better one.
func (u *upstream) ask(ctx context.Context, from netip.Addr, q *dns.Msg) (*dns.Msg, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	servers := u.list(from)
	err := errors.New("the node has no DNS servers")
	var poor *dns.Msg
	for i, s := range slices.Concat(servers, servers) { // a packet can be lost
		if i == len(servers) && poor != nil {
			break
		}
		end, _ := ctx.Deadline()
		part, stop := context.WithTimeout(ctx, time.Until(end)/time.Duration(2*len(servers)-i))
		answer, failed := askOne(part, s, q)
		stop()
		switch {
		case failed != nil:
			err = failed
		case answer.Rcode == dns.RcodeServerFailure || answer.Rcode == dns.RcodeRefused:
			poor = answer
		default:
			if i > 0 {
				u.prefer(s)
			}
			return answer, nil
		}
	}
	if poor != nil {
		return poor, nil
	}
	return nil, err
}

// askOne asks a server by UDP, and by TCP if the answer has no room in a packet.
func askOne(ctx context.Context, server netip.Addr, q *dns.Msg) (*dns.Msg, error) {
	answer, err := exchange(ctx, "udp", server, q)
	if err == nil && answer.Truncated {
		answer, err = exchange(ctx, "tcp", server, q)
	}
	return answer, err
}

// exchange asks from a socket of its own, whose port the kernel chooses at random, with a random id. It waits for the answer to this question: anything else
// that comes is somebody's who would like to be believed.
func exchange(ctx context.Context, network string, server netip.Addr, q *dns.Msg) (*dns.Msg, error) {
	const port = 53
	c, err := new(net.Dialer).DialContext(ctx, network, netip.AddrPortFrom(server, port).String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	_ = c.SetDeadline(end)
	conn := &dns.Conn{Conn: c, UDPSize: packetSize}
	q = q.Copy()
	q.Id = dns.Id()
	if err := conn.WriteMsg(q); err != nil {
		return nil, err
	}
	for {
		answer, err := conn.ReadMsg()
		if err == nil && isAnswer(answer, q) {
			return answer, nil
		}
		if failed := net.Error(nil); errors.As(err, &failed) || network == "tcp" {
			return nil, errors.Join(err, errors.New("no answer to the question"))
		}
	}
}

func isAnswer(a, q *dns.Msg) bool {
	if !a.Response || a.Id != q.Id || a.Opcode != q.Opcode || len(a.Question) != 1 {
		return false
	}
	is, want := a.Question[0], q.Question[0]
	return is.Qtype == want.Qtype && is.Qclass == want.Qclass && strings.EqualFold(is.Name, want.Name)
}
