package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// DialContext connects from the namespace, with the signature that net/http.Transport wants. The address must be a
// literal: nothing in a namespace answers DNS.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if err := checkLiteral(address); err != nil {
		return nil, err
	}
	// For a literal address the net package makes the socket on the calling thread; a socket stays in the namespace it
	// was made in.
	n.Do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
	return conn, err
}

// DialTCP connects from the namespace to a ServeTCP server and returns the line it answers.
func (n *Namespace) DialTCP(target string, timeout time.Duration) (string, error) {
	return n.ask("tcp", target, timeout)
}

// DialUDP sends one datagram from the namespace to a ServeUDP server and returns the line it answers. Nothing is sent
// again, so that a lost first packet shows.
func (n *Namespace) DialUDP(target string, timeout time.Duration) (string, error) {
	return n.ask("udp", target, timeout)
}

func (n *Namespace) ask(network, target string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := n.DialContext(ctx, network, target)
	if err != nil {
		return "", fmt.Errorf("from %s: %w", n.name, err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return "", fmt.Errorf("from %s: %w", n.name, err)
	}
	answer := make([]byte, 512)
	length, err := conn.Read(answer)
	if err != nil {
		return "", fmt.Errorf("from %s: %w", n.name, err)
	}
	return strings.TrimSuffix(string(answer[:length]), "\n"), nil
}

// ServeTCP serves in the namespace until the test ends: a client gets the line "NAME saw ADDRESS", which tells whom it
// has reached and what its own address looks like from there. The address is a literal with a port, such as ":80",
// "10.1.0.2:80" or "[fd00::2]:80", and port 0 picks a free one. ServeTCP returns the address it listens on.
func (n *Namespace) ServeTCP(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	if err := checkLiteral(address); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	err := n.do(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatalf("serve TCP in %s: %v", n.name, err)
	}
	n.node.kept.Store(n.netns, true)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go n.greet(conn)
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// greet answers one client. It hears the client out first: closing a socket with unread data resets the connection.
func (n *Namespace) greet(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	if _, err := conn.Read(make([]byte, 512)); err == nil {
		_, _ = io.WriteString(conn, n.banner(peer))
	}
}

// IsTimeout reports whether err, of a client, says that there was no answer at all: neither one from the server nor a
// refusal.
func IsTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// banner is the line a server answers.
func (n *Namespace) banner(peer netip.AddrPort) string {
	return fmt.Sprintf("%s saw %s\n", n.name, peer.Addr().Unmap())
}

// checkLiteral refuses an address that the net package would have to look up, or whose zone it would look for among the
// links of another namespace.
func checkLiteral(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if strings.Trim(port, "0123456789") != "" {
		return fmt.Errorf("port %q of %q must be a number", port, address)
	}
	if host == "" {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	if ip.Zone() != "" {
		return errors.New("addresses with a zone are not supported: " + address)
	}
	return nil
}
