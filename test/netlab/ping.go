package netlab

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// The ICMP types that Ping knows.
const (
	echoRequest4, echoReply4, unreachable4 = 8, 0, 3
	echoRequest6, echoReply6, unreachable6 = 128, 129, 1
)

// pings counts the pings of the process; the number tells their replies apart.
var pings atomic.Uint32

// Ping sends one ICMP echo request from the namespace and waits for the reply.
func (n *Namespace) Ping(target string, timeout time.Duration) error {
	addr, err := netip.ParseAddr(target)
	if err != nil {
		return err
	}
	if err := n.ping(addr, timeout); err != nil {
		return fmt.Errorf("ping %s from %s: %w", target, n.name, err)
	}
	return nil
}

func (n *Namespace) ping(target netip.Addr, timeout time.Duration) error {
	network, local := "ip4:1", "0.0.0.0" // 1 is ICMP
	request, reply, unreachable := byte(echoRequest4), byte(echoReply4), byte(unreachable4)
	if target.Is6() {
		network, local = "ip6:58", "::" // 58 is ICMPv6
		request, reply, unreachable = echoRequest6, echoReply6, unreachable6
	}
	var conn net.PacketConn
	err := n.do(func() (err error) {
		conn, err = net.ListenPacket(network, local)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	id := pings.Add(1)
	if _, err := conn.WriteTo(echo(request, id), &net.IPAddr{IP: target.AsSlice()}); err != nil {
		return err
	}
	return awaitEcho(conn, id, reply, unreachable)
}

// awaitEcho reads what the raw socket gets, which is all ICMP traffic of the namespace, until it is about our echo.
func awaitEcho(conn net.PacketConn, id uint32, reply, unreachable byte) error {
	buf := make([]byte, 1500)
	for {
		length, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		message := buf[:length]
		if len(message) < 8 {
			continue
		}
		switch message[0] {
		case reply:
			if binary.BigEndian.Uint32(message[4:]) == id {
				return nil
			}
		case unreachable:
			// What follows is the IP header (20 bytes, 40 for IPv6) and the beginning of the packet it is about.
			inner := message[8:]
			if header := map[byte]int{unreachable4: 20, unreachable6: 40}[unreachable]; len(inner) >= header+8 &&
				binary.BigEndian.Uint32(inner[header+4:]) == id {
				return fmt.Errorf("%s says it is unreachable (ICMP code %d)", from, message[1])
			}
		}
	}
}

// echo makes an echo request. Identifier and sequence number, two bytes each, hold id.
func echo(kind byte, id uint32) []byte {
	message := make([]byte, 16)
	message[0] = kind
	binary.BigEndian.PutUint32(message[4:], id)
	copy(message[8:], "netlab!!")
	// The kernel fills in the checksum for ICMPv6 only, and there overwrites this one.
	binary.BigEndian.PutUint16(message[2:], checksum(message))
	return message
}

// checksum is the Internet checksum of a message of even length.
func checksum(message []byte) uint16 {
	var sum uint32
	for i := 0; i < len(message); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(message[i:]))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum + sum>>16)
}
