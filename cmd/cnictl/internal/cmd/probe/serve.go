package probe

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// servedPort is where the containers answer, by TCP and UDP: that of the echo protocol.
const servedPort = 7

// Each packet that is sent to be answered has a question with a token of its test in it, and its answer the same with another mark: so
// both are known again wherever they are seen, whatever is translated on the way.
const (
	questionMark = "cnictl probe? "
	answerMark   = "cnictl probe! "
)

// serve answers questions at each address of the container, until this process ends.
func (c *Container) serve() error {
	for _, address := range c.Addresses {
		at := netip.AddrPortFrom(address, servedPort)
		var stream *net.TCPListener
		var packets *net.UDPConn
		err := c.inside(func() (err error) {
			if stream, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at)); err != nil {
				return err
			}
			packets, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		})
		if err != nil {
			return fmt.Errorf("listen at %s in container %s: %w", at, c.Name, err)
		}
		go answerStreams(stream)
		go answerPackets(packets)
	}
	return nil
}

func answerStreams(l *net.TCPListener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			question := make([]byte, 512)
			if n, err := conn.Read(question); err == nil {
				_, _ = conn.Write(answerTo(question[:n]))
			}
		}()
	}
}

func answerPackets(conn *net.UDPConn) {
	question := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(question)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteToUDPAddrPort(answerTo(question[:n]), from)
		}
	}
}

func answerTo(question []byte) []byte {
	return bytes.Replace(question, []byte(questionMark), []byte(answerMark), 1)
}

// freePort returns a port of the host that nobody listens at.
func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("find a free port of the host: %w", err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	packets, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return 0, fmt.Errorf("find a port of the host that is free by TCP and UDP: %w", err)
	}
	return port, packets.Close()
}
