package resolver

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// client is the container that asks, and what it is answered.
type client struct {
	dns.ResponseWriter
	last    byte // of its address
	stream  bool
	written []*dns.Msg
}

func (c *client) RemoteAddr() net.Addr {
	if c.stream {
		return &net.TCPAddr{IP: net.IPv4(10, 88, 0, c.last), Port: 4711}
	}
	return &net.UDPAddr{IP: net.IPv4(10, 88, 0, c.last), Port: 4711}
}

func (c *client) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(10, 88, 0, 1), Port: 53} }

func (c *client) WriteMsg(m *dns.Msg) error {
	c.written = append(c.written, m)
	return nil
}

// withRecords returns a resolver that listens nowhere, and has no servers to ask.
func withRecords(t testing.TB) *Resolver {
	r := newResolver(slog.New(slog.DiscardHandler))
	r.upstream.isOwn = func(netip.Addr) bool { return true }
	dir := t.TempDir()
	for i, name := range []string{"web", "db", "web"} {
		write(t, dir, plugin.Key{Network: "demo", ContainerID: fmt.Sprint("id", i), IfName: "eth0"}, name, fmt.Sprintf("10.88.0.%d", i+2))
	}
	list := &names.Record{Key: plugin.Key{Network: "demo", ContainerID: "listed", IfName: "eth0"}, List: "0123"}
	text := `{"network":"demo","containerID":"listed","ifname":"eth0","list":"0123","lists":[{"allow":["*.example.org"]}],"addresses":["10.88.0.9"],"gateways":["10.88.0.1"]}`
	if err := os.WriteFile(filepath.Join(dir, list.FileName()), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := newWatch(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.queue.Close() })
	r.watch = w
	return r
}

func write(t testing.TB, dir string, k plugin.Key, name, address string) {
	t.Helper()
	text := fmt.Sprintf(`{"network":%q,"containerID":%q,"ifname":%q,"names":[%q],"domain":"dns.podman","addresses":[%q,"fd00:88::%s"],"gateways":["10.88.0.1"]}`,
		k.Network, k.ContainerID, k.IfName, name, address, address[len("10.88.0."):])
	if err := os.WriteFile(filepath.Join(dir, (&names.Record{Key: k}).FileName()), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ask(r *Resolver, name string, kind uint16) *dns.Msg {
	c := &client{last: 2}
	r.ServeDNS(c, new(dns.Msg).SetQuestion(name, kind))
	return c.written[0]
}

// FuzzQuestion sends packets to the resolver as a container can. Whatever is a message is answered once, in as many bytes as the container can take.
func FuzzQuestion(f *testing.F) {
	r := withRecords(f)
	for _, q := range questions() {
		packet, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet, false)
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"), false)        // a name that points to itself
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0e\xc0\x0c\x00\x01\x00\x01"), true) // two that point to each other
	f.Fuzz(func(t *testing.T, packet []byte, stream bool) { serve(t, r, packet, stream) })
}

func questions() (list []*dns.Msg) {
	for _, name := range []string{"web.", "WEB.dns.podman.", "nobody.dns.podman.", "www.example.org.", "dns.podman.", "2.0.88.10.in-addr.arpa.", "example.org.", "."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypePTR, dns.TypeANY, dns.TypeAXFR} {
			q := new(dns.Msg).SetQuestion(name, kind)
			list = append(list, q, q.Copy().SetEdns0(4096, true))
		}
	}
	return list
}

// serve is what the library's server does with a packet.
func serve(t *testing.T, r *Resolver, packet []byte, stream bool) {
	m := new(dns.Msg)
	if m.Unpack(packet) != nil || m.Response || len(m.Question) != 1 {
		return
	}
	c := &client{stream: stream, last: 2}
	if len(packet)%2 == 0 {
		c.last = 9 // which has a list
	}
	r.ServeDNS(c, m)
	if len(c.written) != 1 {
		t.Fatalf("%d answers to %v", len(c.written), m)
	}
	size := dns.MinMsgSize
	if opt := m.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
	}
	a := c.written[0]
	text, err := a.Pack()
	if err != nil || a.Id != m.Id || !a.Response || !stream && len(text) > size {
		t.Fatalf("%v\nis answered by %d bytes, error %v:\n%v", m, len(text), err, a)
	}
}

var mutated = flag.Int("mutated", 20_000, "how many packets TestMutated sends") // make fuzz-dns sends a million

// TestMutated sends the resolver packets that were questions before some of their bytes were changed.
func TestMutated(t *testing.T) {
	r := withRecords(t)
	var packets [][]byte
	for _, q := range questions() {
		packet, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, packet)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range *mutated {
		packet := append([]byte{}, packets[rng.IntN(len(packets))]...)
		for range 1 + rng.IntN(4) {
			switch at := rng.IntN(len(packet)); rng.IntN(4) {
			case 0:
				packet = packet[:at+1]
			case 1:
				packet[at] = 0xc0
			default:
				packet[at] = byte(rng.IntN(256))
			}
		}
		serve(t, r, packet, rng.IntN(2) == 0)
	}
}

// FuzzAnswer has somebody send what may be taken for the answer to a question.
func FuzzAnswer(f *testing.F) {
	q := new(dns.Msg).SetQuestion("example.org.", dns.TypeA)
	q.Id = 7
	good := new(dns.Msg).SetReply(q)
	packet, _ := good.Pack()
	f.Add(packet)
	f.Fuzz(func(t *testing.T, packet []byte) {
		a := new(dns.Msg)
		if a.Unpack(packet) == nil && isAnswer(a, q) && (a.Id != 7 || dns.CanonicalName(a.Question[0].Name) != "example.org." || !a.Response) {
			t.Errorf("it is believed: %v", a)
		}
	})
}

// FuzzChosen has a server that is asked for a name on a list answer whatever it likes. It opens nothing of the node, and all that is opened is handed on.
func FuzzChosen(f *testing.F) {
	lists := reach.Lists{Closed: true}
	for _, text := range []string{"*.example.org:443", "www.example.org", "10.1.0.0/16"} {
		e, err := reach.Parse(text)
		if err != nil {
			f.Fatal(err)
		}
		lists.Allow = append(lists.Allow, e)
	}
	from := &asker{record: &names.Record{List: "0123"}, lists: lists}
	good := new(dns.Msg)
	for _, text := range []string{"www.example.org. 5 CNAME a.example.", "a.example. 5 A 198.51.100.1", "a.example. 5 A 10.1.0.1", "a.example. 5 AAAA ::1"} {
		rr, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		good.Answer = append(good.Answer, rr)
	}
	packet, _ := good.Pack()
	f.Add(packet)
	f.Fuzz(func(t *testing.T, packet []byte) {
		m := new(dns.Msg)
		if m.Unpack(packet) != nil {
			return
		}
		const name = "www.example.org"
		list, openings := chosen(m.Answer, name, lists.ByName(name), from)
		for _, o := range openings {
			isIn := slices.ContainsFunc(list, func(rr dns.RR) bool { a, is := addressIn(rr); return is && a == o.Addr })
			if !isIn || isInside(o.Addr, nil) || o.Ports < 0 || o.For < shortest || o.For > longestOpen {
				t.Errorf("%v opens %+v", m, o)
			}
		}
	})
}
