package probe

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
)

// try tries all tests at once, and returns which packets were seen and where.
func (w *subject) try(ctx context.Context, tests []*Test, timeout time.Duration) (*traces, error) {
	seen, err := w.watch(tests)
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	for _, t := range tests {
		if t.Outcome == NotTried {
			continue
		}
		all.Go(func() {
			if t.outside {
				t.err = w.tryOutside(ctx, t, timeout)
			} else {
				t.err = t.try(ctx, timeout)
			}
			if t.err != nil {
				t.Outcome = Failed
			}
		})
	}
	all.Wait()
	return seen, seen.stop()
}

// try asks until it is answered, or there is no time left.
func (t *Test) try(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case t.protocol == tcp:
		return t.tryTCP(ctx)
	case t.protocol == echo:
		return t.tryEcho(ctx)
	}
	conn, err := t.dial(ctx, net.Dialer{}, "udp", t.target.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	return t.ask(ctx, conn, t.question)
}

// dial connects from where the test begins.
func (t *Test) dial(ctx context.Context, d net.Dialer, network, address string) (conn net.Conn, err error) {
	if t.from == nil {
		return d.DialContext(ctx, network, address)
	}
	err = t.from.inside(func() error {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (t *Test) tryTCP(ctx context.Context) error {
	var d net.Dialer
	if t.from == nil { // the port tells these packets from others' after the host has translated their addresses
		port, err := freePort()
		if err != nil {
			return err
		}
		t.source, d.LocalAddr = uint16(port), &net.TCPAddr{Port: port}
	}
	conn, err := t.dial(ctx, d, "tcp", t.target.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if t.reached == nil {
		return nil
	}
	return t.ask(ctx, conn, t.question)
}

// ask sends a question, what may get lost again and again, until it is answered.
func (t *Test) ask(ctx context.Context, conn net.Conn, question []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	const patience = 400 * time.Millisecond
	for {
		if t.protocol != tcp {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
		}
		var answer []byte
		_, err := conn.Write(question)
		if err == nil {
			answer, err = t.listen(conn)
		}
		switch {
		case err == nil:
			return t.checkName(answer)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
		case t.asksAgent && errors.Is(err, syscall.ECONNREFUSED): // which may not have heard of the container yet
			select {
			case <-ctx.Done():
				return err
			case <-time.After(patience):
			}
		case errors.Is(err, syscall.EMSGSIZE) && t.size == 0: // about the largest packet, which sockets for ICMP with the same target hear of, too
		default:
			return err
		}
	}
}

// listen waits for the answer.
func (t *Test) listen(conn net.Conn) ([]byte, error) {
	packet := make([]byte, 1<<16)
	for {
		n, err := read(conn, packet)
		if err != nil {
			return nil, err
		}
		if t.isAnswer(packet[:n]) {
			return packet[:n], nil
		}
	}
}

// read reads a packet without its IP header, which a raw socket has when it is simply read from.
func read(conn net.Conn, packet []byte) (n int, err error) {
	if raw, ok := conn.(*net.IPConn); ok {
		n, _, err = raw.ReadFromIP(packet)
		return n, err
	}
	return conn.Read(packet)
}

// isAnswer reports whether the test's answer is in a packet. A socket for ICMP gets all of it, of other tests and questions too.
func (t *Test) isAnswer(packet []byte) bool {
	if t.protocol == echo {
		m, err := icmp.ParseMessage(t.icmp(), packet)
		if err != nil || m.Type != t.echoReply() {
			return false
		}
	}
	return t.answeredBy(packet)
}

// answeredBy reports whether the test's answer is in what a packet carries. Of name servers it has the number of the question.
func (t *Test) answeredBy(payload []byte) bool {
	if t.asksName && (!bytes.HasPrefix(payload, t.question[:2]) || bytes.Equal(payload, t.question)) {
		return false
	}
	return bytes.Contains(payload, t.answer)
}
