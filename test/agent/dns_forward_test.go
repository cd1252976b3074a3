package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestDNSForwards: what is no container's name is asked of the node's servers, and what they say comes as it is.
func TestDNSForwards(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	long := strings.Repeat("x", 250)
	var many []string
	for range 200 {
		many = append(many, `large.example. 60 TXT "`+long+`"`) // some 52,000 bytes
	}
	zone{
		"www.example.":   has("www.example. 60 A 198.51.100.7"),
		"loop.example.":  has("loop.example. 60 CNAME pool.example.", "pool.example. 60 CNAME loop.example."),
		"large.example.": has(many...),
		"fails.example.": func(w dns.ResponseWriter, q *dns.Msg) {
			_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
		},
		"web.": has("web. 60 A 198.51.100.66"),
	}.serve(t, out, netlab.OutsideIPv4)
	start(t, host, "--dns")
	web := newNamed(t, host, 1, "web")
	web.awaitNames()
	web.is("www.example", dns.TypeA, "198.51.100.7")
	web.is("loop.example", dns.TypeA, "loop.example. pool.example.")
	web.is("fails.example", dns.TypeA, "SERVFAIL")
	web.is("nobody.example", dns.TypeA, "NXDOMAIN")
	web.is("web", dns.TypeA, web.v4)

	q := query("large.example", dns.TypeTXT)
	a, err := exchange(&web.Namespace, "udp", gateway(1), q, netlab.Patience)
	if err != nil || !a.Truncated || a.Len() > dns.MinMsgSize {
		t.Errorf("a large answer by UDP: error %v, %v", err, a)
	}
	a, err = exchange(&web.Namespace, "udp", gateway(1), q.Copy().SetEdns0(65535, false), netlab.Patience)
	if err != nil || !a.Truncated || a.Len() > 1232 || a.IsEdns0() == nil {
		t.Errorf("a large answer by UDP with EDNS: error %v, %v", err, a)
	}
	a, err = exchange(&web.Namespace, "tcp", gateway(1), q, netlab.Patience)
	if err != nil || a.Truncated || len(a.Answer) != 200 {
		t.Errorf("a large answer by TCP: error %v", err)
	}
}

// TestDNSServers: the node's servers are those of its file at the moment, the gateway is not asked although it is named, and without an answer of theirs
// the container gets one that says so.
func TestDNSServers(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	out.MustRun(t, "ip", "address", "add", "192.0.2.53/24", "dev", "uplink0")
	zone{"where.example.": has(`where.example. 60 TXT "first"`)}.serve(t, out, netlab.OutsideIPv4)
	zone{"where.example.": has(`where.example. 60 TXT "second"`)}.serve(t, out, "192.0.2.53")
	start(t, host, "--dns")
	web := newNamed(t, host, 1, "web")
	web.awaitNames()
	web.is("where.example", dns.TypeTXT, `"first"`)
	resolvConf(t, host, gateway(1), gateway6(1), "192.0.2.53")
	web.is("where.example", dns.TypeTXT, `"second"`)
	resolvConf(t, host, "192.0.2.99", netlab.OutsideIPv4) // nobody is at the first
	web.is("where.example", dns.TypeTXT, `"first"`)
	resolvConf(t, host, "192.0.2.99")
	web.is("where.example", dns.TypeTXT, "SERVFAIL")
	resolvConf(t, host, web.v4) // it may be the node's server itself
	web.is("where.example", dns.TypeTXT, "SERVFAIL")
	resolvConf(t, host, gateway(1))
	web.is("where.example", dns.TypeTXT, "SERVFAIL")
	web.is("web", dns.TypeA, web.v4)
	resolvConf(t, host, "127.0.0.53") // as with systemd-resolved
	host.Feed(t, "nameserver 192.0.2.53\n", "sh", "-c", "mkdir -p /run/systemd/resolve; cat > /run/systemd/resolve/new; mv /run/systemd/resolve/new /run/systemd/resolve/resolv.conf")
	web.is("where.example", dns.TypeTXT, `"second"`)
}

// ownEtc gives the node a /etc of its own, where a file can take the place of another.
func ownEtc(t *testing.T, host *netlab.Host) {
	t.Helper()
	host.MustRun(t, "sh", "-ec", "mkdir /run/etc; cp -a /etc/. /run/etc; mount --bind /run/etc /etc")
}

// overwrite writes a file in place, as who edits it does.
func overwrite(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

// exchangeFile puts another file in its place, as systemd-resolved does.
func exchangeFile(path, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), overwrite(path+".new", text), os.Rename(path+".new", path))
}

// TestDNSServersChange: the first question after a change of the node's servers goes to the new ones, however their file was changed. It prints how long after
// the change the answer came.
func TestDNSServersChange(t *testing.T) {
	t.Parallel()
	const etc, resolved = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	host, out := newNamedHost(t)
	ownEtc(t, host)
	servers := []string{"192.0.2.53", "192.0.2.54"}
	for i, s := range servers {
		out.MustRun(t, "ip", "address", "add", s+"/24", "dev", "uplink0")
		zone{"where.example.": has(fmt.Sprintf("where.example. 60 A 198.51.100.%d", i))}.serve(t, out, s)
	}
	serveDNS(t, &host.Namespace, "127.0.0.53", zone{"where.example.": has("where.example. 60 A 198.51.100.53")})
	start(t, host, "--dns")
	web := newNamed(t, host, 1, "web")
	web.awaitNames()
	conn := web.newSocket()
	change := func(do func(path, text string) error, path, server, want string) time.Duration {
		t.Helper()
		var began time.Time
		host.Do(func() {
			if err := do(path, "nameserver "+server+"\n"); err != nil {
				t.Fatal(err)
			}
			began = time.Now()
		})
		at, err := askUntil(conn.ask, "where.example", want)
		if err != nil {
			t.Fatalf("%s has %s: %v", path, server, err)
		}
		return at.Sub(began)
	}
	for _, c := range []struct {
		what, path string
		do         func(path, text string) error
	}{
		{"resolv.conf, written in place", etc, overwrite},
		{"resolv.conf, another in its place", etc, exchangeFile},
		{"that of systemd-resolved, another in its place", resolved, exchangeFile},
	} {
		if c.path == resolved {
			t.Logf("from 127.0.0.53 in resolv.conf, with nothing beside it, to its answer: %s", ms(change(exchangeFile, etc, "127.0.0.53", "198.51.100.53")))
		}
		var took times
		for range chosen(20, 500) {
			for i, s := range servers {
				took = append(took, change(c.do, c.path, s, fmt.Sprintf("198.51.100.%d", i)))
			}
		}
		t.Logf("from a change of %s to the new server's answer: %v", c.what, took)
	}
}

// TestDNSForged: what comes before the answer with another id, to another question, from another port or as nonsense is not believed.
func TestDNSForged(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	var own, other net.PacketConn
	var err, failed error
	out.Do(func() {
		own, err = net.ListenPacket("udp", netlab.OutsideIPv4+":53")
		other, failed = net.ListenPacket("udp", netlab.OutsideIPv4+":5353")
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	t.Cleanup(func() { _, _ = own.Close(), other.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := own.ReadFrom(buffer)
			q := new(dns.Msg)
			if err != nil || q.Unpack(buffer[:n]) != nil {
				return
			}
			say := func(by net.PacketConn, address string, change func(*dns.Msg)) {
				a := new(dns.Msg).SetReply(q)
				rr, _ := dns.NewRR(q.Question[0].Name + " 60 A " + address)
				a.Answer = []dns.RR{rr}
				change(a)
				packet, _ := a.Pack()
				_, _ = by.WriteTo(packet, from)
			}
			say(own, "198.51.100.1", func(a *dns.Msg) { a.Id++ })
			say(own, "198.51.100.2", func(a *dns.Msg) { a.Question[0].Name = "another.example." })
			say(own, "198.51.100.3", func(a *dns.Msg) { a.Question[0].Qtype = dns.TypeAAAA })
			say(own, "198.51.100.4", func(a *dns.Msg) { a.Response = false })
			say(own, "198.51.100.5", func(a *dns.Msg) { a.Question = nil })
			say(other, "198.51.100.6", func(*dns.Msg) {})
			_, _ = own.WriteTo([]byte("nonsense"), from)
			_, _ = own.WriteTo(append(append([]byte{}, buffer[:2]...), "\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"...), from) // a name that points to itself
			say(own, "198.51.100.7", func(*dns.Msg) {})
		}
	}()
	start(t, host, "--dns")
	web := newNamed(t, host, 1, "web")
	web.awaitNames()
	for range 20 {
		web.is("www.example", dns.TypeA, "198.51.100.7")
	}
}
