package nft

import (
	"bytes"
	"encoding/binary"
	stdflag "flag"
	"fmt"
	"math/rand"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/test/netlab"
)

var listsFlag = stdflag.Int("lists", 60, "random lists that are compared with the model")

// modelEntry, modelLists and opens are the model: what a list means, as its page says it.
type modelEntry struct {
	prefix    netip.Prefix
	protocols []int // none: all of IP
	low, high int
}

type modelLists struct {
	closed      bool
	allow, deny []modelEntry
}

func (e modelEntry) has(dst netip.Addr, protocol, port int) bool {
	for _, p := range e.protocols {
		if p == protocol && e.low <= port && port <= e.high {
			return e.prefix.Contains(dst)
		}
	}
	return len(e.protocols) == 0 && e.prefix.Contains(dst)
}

func (l modelLists) opens(dst netip.Addr, protocol, port int) bool {
	open := !l.closed
	for _, e := range l.allow {
		open = open || e.has(dst, protocol, port)
	}
	for _, e := range l.deny {
		open = open && !e.has(dst, protocol, port)
	}
	return open
}

// randomly makes up entries that overlap, and texts of them.
func randomly(r *rand.Rand) (e modelEntry, text string) {
	addr, bits := netip.AddrFrom4([4]byte{198, 18, byte(r.Intn(3)), byte(r.Intn(256))}), []int{8, 15, 16, 22, 24, 27, 30, 31, 32, 0}[r.Intn(10)]
	if r.Intn(2) == 0 {
		addr, bits = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 5, byte(r.Intn(2)), 14: byte(r.Intn(2)), 15: byte(r.Intn(256))}), []int{32, 40, 48, 64, 112, 120, 127, 128, 3, 121}[r.Intn(10)]
	}
	e.prefix = netip.PrefixFrom(addr, bits).Masked()
	text = e.prefix.String()
	if r.Intn(3) == 0 {
		return e, text
	}
	if addr.Is6() {
		text = "[" + text + "]"
	}
	e.low = 1 + r.Intn(12)
	e.high = e.low + r.Intn(3)*r.Intn(6)
	text += fmt.Sprintf(":%d-%d", e.low, e.high)
	kind := r.Intn(4)
	e.protocols = [][]int{{unix.IPPROTO_TCP, unix.IPPROTO_UDP}, {unix.IPPROTO_TCP}, {unix.IPPROTO_UDP}, {unix.IPPROTO_SCTP}}[kind]
	return e, text + []string{"", "/tcp", "/udp", "/sctp"}[kind]
}

// always is what each list has, so that a packet to there shows that those before it have been judged.
const always = "203.0.113.9"

func randomLists(t *testing.T, r *rand.Rand) (m modelLists, l reach.Lists) {
	parse := func(text string) reach.Entry {
		e, err := reach.Parse(text)
		must(t, err)
		return e
	}
	l.Closed = r.Intn(4) > 0
	m.closed = l.Closed
	if l.Closed {
		l.Allow = append(l.Allow, parse(always))
		m.allow = append(m.allow, modelEntry{prefix: netip.MustParsePrefix(always + "/32")})
		for range r.Intn(12) {
			e, text := randomly(r)
			m.allow, l.Allow = append(m.allow, e), append(l.Allow, parse(text))
		}
	}
	for range r.Intn(5) {
		e, text := randomly(r)
		if !e.prefix.Contains(netip.MustParseAddr(always)) {
			m.deny, l.Deny = append(m.deny, e), append(l.Deny, parse(text))
		}
	}
	return m, l
}

// sent is a packet that is sent, and whether it should arrive.
type sent struct {
	dst            netip.Addr
	protocol, port int
	open           bool
}

// TestEgressModel sends packets of random kinds under random lists, and compares those that arrive with the model.
func TestEgressModel(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	evil, out := h.NewPod(t, "evil"), h.NewOutside(t)
	h.MustRun(t, "sh", "-ec", `ip link add veth2 address 02:00:00:00:01:01 type veth peer name eth0 address 02:00:00:00:00:02 netns `+evil.Path()+`
		ip link set veth2 up; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.veth2.rp_filter=0
		ip addr add 10.88.0.1/24 dev veth2; ip addr add fd00::ff/64 dev veth2 nodad`)
	evil.MustRun(t, "ip", "link", "set", "eth0", "up")
	var arrived sync.Map // the numbers of packets
	arrives := func(id uint32) bool { _, is := arrived.Load(id); return is }
	const mark = "\xc1\xb0\xc5\x5e" // before the number
	seen, from := out.PacketSocket(t, netlab.UplinkName), evil.PacketSocket(t, "eth0")
	go func() {
		for b := make([]byte, 2048); ; {
			n, _, err := seen.ReadFrom(b)
			if err != nil {
				return
			}
			if at := bytes.Index(b[:n], []byte(mark)); at > 0 && at+8 <= n {
				arrived.Store(binary.BigEndian.Uint32(b[at+4:]), true)
			}
		}
	}()
	runtime.LockOSThread() // packets of several processors overtake each other
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	one.Set(0)
	if unix.SchedSetaffinity(0, &one) == nil {
		defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	}
	send := func(id uint32, p sent) {
		content := []byte{16, 0, byte(p.port >> 8), byte(p.port), 0, 20, 0, 0}
		if p.protocol == unix.IPPROTO_TCP {
			content = append(content, 0, 0, 0, 0, 0x50, 2, 32, 0, 0, 0, 0, 0)
		}
		content = binary.BigEndian.AppendUint32(append(content, mark...), id)
		ether := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 1, 1}, EthernetType: layers.EthernetTypeIPv4}
		var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocol(p.protocol), SrcIP: net.IP{10, 88, 0, 2}, DstIP: p.dst.AsSlice()}
		if p.dst.Is6() {
			ether.EthernetType = layers.EthernetTypeIPv6
			ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocol(p.protocol), SrcIP: net.ParseIP("fd00::2"), DstIP: p.dst.AsSlice()}
		}
		b := gopacket.NewSerializeBuffer()
		must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ether, ip, gopacket.Payload(content)))
		_, err := from.WriteTo(b.Bytes(), &packet.Addr{HardwareAddr: ether.DstMAC})
		must(t, err)
	}
	c := open(t, h)
	seed := rand.Int63()
	r := rand.New(rand.NewSource(seed))
	id := uint32(0)
	for n := range *listsFlag {
		m, l := randomLists(t, r)
		m2, l2 := randomLists(t, r)
		if r.Intn(2) == 0 {
			m2, l2 = modelLists{}, reach.Lists{}
		}
		needs := spec.EgressNeeds{HostEnd: "veth2", MAC: [6]byte{2, 0, 0, 0, 0, 2}, Addrs: prefixes("10.88.0.2/24", "fd00::2/64"), Lists: l.And(l2)}
		h.Do(func() { must(t, c.Add(ctx, keyOf("evil"), ToJudge(needs))) })
		want := map[uint32]sent{}
		for range 20 {
			e, _ := randomly(r)
			if list := slices.Concat(m.allow, m.deny, m2.deny); len(list) > 0 && r.Intn(3) > 0 {
				e.prefix = list[r.Intn(len(list))].prefix
			}
			dst := e.prefix.Addr()
			if other, _ := randomly(r); e.prefix.Contains(other.prefix.Addr()) && r.Intn(2) == 0 {
				dst = other.prefix.Addr()
			}
			if dst.IsUnspecified() || dst.IsMulticast() || !dst.IsGlobalUnicast() || dst.Is4() && dst.As4()[0] == 0 || dst.Is6() && dst.As16()[0] != 0x20 {
				continue
			}
			protocol := []int{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, 253}[r.Intn(4)]
			port := 1 + r.Intn(22)
			id++
			want[id] = sent{dst, protocol, port, m.opens(dst, protocol, port) && m2.opens(dst, protocol, port)}
			send(id, want[id])
		}
		id++
		want[id] = sent{netip.MustParseAddr(always), unix.IPPROTO_UDP, 9, true}
		send(id, want[id])
		err := netlab.Await(func() (err error) {
			for id, p := range want {
				if p.open && !arrives(id) { // a socket of a busy machine loses some
					err = fmt.Errorf("%+v does not arrive", p)
					send(id, p)
				}
			}
			return err
		})
		for id, p := range want {
			if !p.open && arrives(id) {
				err = fmt.Errorf("%+v arrives", p)
			}
		}
		if err != nil {
			t.Fatalf("seed %d, list %d: %v and %v: %v\n%s", seed, n, m, m2, err, h.MustRun(t, "nft", "list", "table", "inet", "cnibox-egress"))
		}
	}
	t.Logf("%d lists, %d packets", *listsFlag, id)
}
