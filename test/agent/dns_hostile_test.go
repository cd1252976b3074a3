package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestDNSSilentClients: a container that opens TCP connections and says nothing, or not all, keeps nobody from an answer (as CVE-2024-8418 of aardvark-dns was),
// and its connections end.
func TestDNSSilentClients(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	bad, good := newNamed(t, host, 1, "bad"), newNamed(t, host, 1, "good")
	good.awaitNames()
	var open []net.Conn
	bad.Do(func() { // on one thread, since they end soon
		for i := range 600 { // more than the agent takes of all containers
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(gateway(1), "53"), netlab.Patience)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				_, _ = conn.Write([]byte("\xff\xff\x00")) // of a message of 65535 bytes
			}
			open = append(open, conn)
		}
	})
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	for _, network := range []string{"udp", "tcp"} {
		if got := good.askAt(network, gateway(1), "bad", dns.TypeA); got != bad.v4 {
			t.Errorf("by %s: %q", network, got)
		}
	}
	bad.is("good", dns.TypeA, good.v4) // by UDP it is answered itself
	for _, conn := range open {
		_ = conn.SetReadDeadline(time.Now().Add(netlab.Patience))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection that says nothing is not closed")
		}
	}
}

// dial connects to the gateway by TCP.
func (c *inDNS) dial() net.Conn {
	c.Helper()
	ctx, stop := context.WithTimeout(context.Background(), netlab.Patience)
	defer stop()
	conn, err := c.DialContext(ctx, "tcp", net.JoinHostPort(gateway(c.network), "53"))
	if err != nil {
		c.Fatal(err)
	}
	return conn
}

// TestDNSReset: a part of a message, and then a reset of the connection, leave the agent idle (unlike CVE-2026-35406 of aardvark-dns).
func TestDNSReset(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	a := start(t, host, "--dns", "--every", "1h")
	web := newNamed(t, host, 1, "web")
	web.awaitNames()
	for range 50 {
		conn := web.dial()
		if _, err := conn.Write([]byte("\x00\x20\x00\x01\x01\x00")); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	netlab.Eventually(t, func() error { // until it has seen all of them end the container has no connection left
		a, err := exchange(&web.Namespace, "tcp", gateway(1), query("web", dns.TypeA), netlab.Patience)
		if err == nil && texts(a) != web.v4 {
			err = errors.New(texts(a))
		}
		return err
	})
	used := a.ticks()
	netlab.Until(t, "the agent to be idle", func() bool {
		before := used
		netlab.Pause(silence)
		used = a.ticks()
		return used == before
	})
}

// ticks returns how much processor time the agent has used.
func (a *running) ticks() int {
	a.Helper()
	text := a.host.MustRun(a, "cat", "/proc/"+strconv.Itoa(a.pid())+"/stat")
	fields := strings.Fields(text[strings.LastIndexByte(text, ')'):])
	user, _ := strconv.Atoi(fields[12])
	system, _ := strconv.Atoi(fields[13])
	return user + system
}

// TestDNSFlood: a container that asks as fast as it can, for its network's names and for others, does not starve another.
func TestDNSFlood(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{"slow.example.": func(dns.ResponseWriter, *dns.Msg) {}, "www.example.": has("www.example. 60 A 198.51.100.7")}.serve(t, out, netlab.OutsideIPv4) // never answers
	a := start(t, host, "--dns")
	bad, good := newNamed(t, host, 1, "bad"), newNamed(t, host, 1, "good")
	good.awaitNames()
	done := make(chan struct{})
	defer close(done)
	var sent atomic.Int64
	for _, name := range []string{"good.", "slow.example."} {
		conn, err := bad.DialContext(context.Background(), "udp", net.JoinHostPort(gateway(1), "53"))
		if err != nil {
			t.Fatal(err)
		}
		packet, _ := query(name, dns.TypeA).Pack()
		go func() {
			defer conn.Close()
			for {
				select {
				case <-done:
					return
				default:
					if _, err := conn.Write(packet); err == nil {
						sent.Add(1)
					}
				}
			}
		}()
	}
	netlab.Until(t, "a share to be used up", func() bool { return a.status().DNS.Questions["limited"] > 1000 })
	tries := 0
	for i := range 50 {
		name, want := "bad", bad.v4
		if i%2 == 1 { // which the agent has to ask for
			name, want = "www.example", "198.51.100.7"
		}
		netlab.Eventually(t, func() error {
			tries++
			// The question waits behind the flood for as long as a C library waits for an answer.
			answer, err := exchange(&good.Namespace, "udp", gateway(1), query(name, dns.TypeA), 5*time.Second)
			if err == nil && texts(answer) != want {
				err = fmt.Errorf("%s: %s", name, texts(answer))
			}
			return err
		})
	}
	t.Logf("50 answers to %d questions, beside a flood of %d packets", tries, sent.Load())
	if tries > 1000 {
		t.Errorf("another container has to ask %d times", tries)
	}
}

// TestDNSNonsense sends the agent packets that are no questions, or no longer. It answers afterwards as before.
func TestDNSNonsense(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	a := start(t, host, "--dns")
	web := newNamed(t, host, 1, "web")
	web.awaitNames()
	rng := rand.New(rand.NewPCG(1, 2))
	conn, err := web.DialContext(context.Background(), "udp", net.JoinHostPort(gateway(1), "53"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	good, _ := query("web.dns.podman", dns.TypeA).Pack()
	for range chosen(5000, 1_000_000) {
		packet := append([]byte{}, good...)
		for range 1 + rng.IntN(4) {
			packet[rng.IntN(len(packet))] = byte(rng.IntN(256))
		}
		if _, err := conn.Write(packet[:1+rng.IntN(len(packet))]); err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"\xff\xff" + strings.Repeat("\xc0\x0c", 32767) + "\xc0", "\x00\x12\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"} {
		stream := web.dial()
		if _, err := stream.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		_ = stream.Close()
	}
	netlab.Eventually(t, func() error { // packets of the web's share may be dropped a moment longer
		answer, err := exchange(&web.Namespace, "udp", gateway(1), query("web", dns.TypeA), silence)
		if err == nil && texts(answer) != web.v4 {
			err = errors.New(texts(answer))
		}
		return err
	})
	if n := a.log.count("bug: "); n > 0 || a.hasEnded() {
		t.Errorf("the agent has ended, or says that there is a bug")
	}
}
