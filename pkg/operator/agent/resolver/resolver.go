// Package resolver answers the questions of containers for names: those of containers on their own networks by the records of the plugin dnsname, and all
// others by asking the node's servers. It listens at the gateways that the records name, so without it port 53 is closed there, the kernel says so at once,
// and a container asks the next server of its list.
//
// A container with lists (the plugin egress) is answered for the names on them alone (list.go). Its questions come to a port of their own.
//
// Whoever asks is a stranger: everything is bounded (limits.go), and what is not asked by a container with a record is refused.
package resolver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/state"
)

// Resolver is one that runs.
type Resolver struct {
	log      *slog.Logger
	lock     *state.Lock
	upstream upstream
	forwards shares
	streams  shares
	figures  figures
	said     said
	refusals refusals
	opener   opener

	mu     sync.Mutex
	watch  *watch
	places map[netip.AddrPort]*place // where it listens
	retry  *time.Timer               // when it next tries to listen where somebody else does; nil if nowhere
	ended  bool
}

func newResolver(log *slog.Logger) *Resolver {
	r := &Resolver{
		log: log, places: map[netip.AddrPort]*place{}, said: said{log: log}, figures: newFigures(),
		opener: opener{filter: nfTables{}}, forwards: shares{most: mostForwarded, mostOf: mostForwardedOf}, streams: shares{most: mostConnections, mostOf: mostConnectionsOf},
	}
	r.upstream.isOwn = r.listensAt
	return r
}

// Start starts a resolver that runs until ctx ends.
func Start(ctx context.Context, log *slog.Logger) (*Resolver, error) {
	r := newResolver(log)
	var err error
	if r.lock, err = names.Claim(ctx); err != nil {
		return nil, err
	}
	if r.watch, err = openWatch(); err != nil {
		r.lock.Release()
		return nil, err
	}
	r.listen()
	go r.watch.wait(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sync()
	})
	context.AfterFunc(ctx, r.end)
	return r, nil
}

func (r *Resolver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for _, p := range r.places {
		p.close()
	}
	_ = r.watch.queue.Close()
	r.lock.Release()
}

// sync takes in what has happened to records. The caller has the lock.
func (r *Resolver) sync() {
	if r.ended {
		return
	}
	changed, err := r.watch.read()
	if err != nil {
		r.said.add(aboutRecords, "records of names can't be read", err)
	} else if changed {
		r.said.drop(aboutRecords)
	}
	if changed {
		r.listen()
	}
}

// asker returns the container that asks, nil if it is none.
func (r *Resolver) asker(from, gateway netip.Addr) *asker {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sync()
	return r.watch.table.asker(from, gateway)
}

func (r *Resolver) isAsker(from netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watch.table.index[entry{ofAddress, "", from.String()}] != nil
}

func (r *Resolver) listensAt(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places[netip.AddrPortFrom(a, names.Port)] != nil
}

// again is how soon it is tried again to listen where somebody else does.
const again = 5 * time.Second

// listen listens at all places, and nowhere else. The caller has the lock.
func (r *Resolver) listen() {
	wanted := r.watch.table.places()
	for a, p := range r.places {
		if !wanted[a] {
			p.close()
			delete(r.places, a)
			r.log.Info("names are not answered any more", "at", placeName(a))
		}
	}
	r.said.dropPlaces(wanted)
	for a := range wanted {
		if r.places[a] != nil {
			continue
		}
		p, err := r.listenAt(a)
		if err != nil {
			r.said.add(placeName(a), "names can't be answered at "+placeName(a), err)
			r.retryLater()
			continue
		}
		r.places[a] = p
		r.said.drop(placeName(a))
		r.log.Info("names are answered", "at", placeName(a))
	}
}

// retryLater has it tried again to listen.
func (r *Resolver) retryLater() {
	if r.retry != nil {
		return
	}
	r.retry = time.AfterFunc(again, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.retry = nil; !r.ended {
			r.listen()
		}
	})
}

// place is an address at which a resolver listens.
type place struct {
	servers []*dns.Server
	sockets []io.Closer
}

// placeName is how people are told of a place.
func placeName(a netip.AddrPort) string {
	if a.Port() == names.Port {
		return a.Addr().String()
	}
	return a.String()
}

// listenAt listens at an address, which the host need not have yet.
func (r *Resolver) listenAt(a netip.AddrPort) (*place, error) {
	const buffer = 1 << 20
	lc := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			if a.Addr().Is4() {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
			}
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
		})
		return errors.Join(failed, err)
	}}
	packets, err := lc.ListenPacket(context.Background(), "udp", a.String())
	if err != nil {
		return nil, err
	}
	streams, err := lc.Listen(context.Background(), "tcp", a.String())
	if err != nil {
		_ = packets.Close()
		return nil, err
	}
	p := &place{sockets: []io.Closer{packets, streams}, servers: []*dns.Server{
		{PacketConn: packets, Handler: r, UDPSize: packetSize, DecorateReader: func(own dns.Reader) dns.Reader {
			return &reader{Reader: own, isAsker: r.isAsker, dropped: func() { r.figures.count(limited) }}
		}},
		{Listener: &listener{streams, &r.streams}, Handler: r, ReadTimeout: silence, IdleTimeout: func() time.Duration { return silence }},
	}}
	for _, server := range p.servers {
		began := make(chan error, 2) // that it has begun, and its end
		server.NotifyStartedFunc = func() { began <- nil }
		go func() {
			err := server.ActivateAndServe()
			began <- err
			if err != nil {
				r.lost(a, p, err)
			}
		}()
		if err := <-began; err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

// lost listens again at an address where that has ended by itself.
func (r *Resolver) lost(a netip.AddrPort, p *place, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.places[a] != p || r.ended {
		return
	}
	r.log.Warn("questions could not be read, which is tried again", "at", placeName(a), "error", err)
	p.close()
	delete(r.places, a)
	r.listen()
}

// close closes the sockets at once. Answers that are under way end by their own time limits.
func (p *place) close() {
	now, stop := context.WithCancel(context.Background())
	stop()
	for _, server := range p.servers {
		_ = server.ShutdownContext(now)
	}
	for _, s := range p.sockets {
		_ = s.Close()
	}
}

// Status is what a resolver says of itself.
type Status struct {
	Addresses []string            `json:"addresses"` // where it answers
	Wrong     map[string]string   `json:"wrong"`     // what it can't do, and why
	Questions map[outcome]float64 `json:"questions"` // by what came of them
}

// Status returns what the resolver says of itself.
func (r *Resolver) Status() *Status {
	s := &Status{Addresses: []string{}, Wrong: r.said.all(), Questions: r.figures.questions()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range slices.SortedFunc(maps.Keys(r.places), netip.AddrPort.Compare) {
		s.Addresses = append(s.Addresses, placeName(a))
	}
	return s
}
