package netlink_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/netns/netnstest"
)

// dial opens a route socket in a new namespace.
func dial(t *testing.T) (*netlink.Conn, *netns.NS) {
	t.Helper()
	ns := netnstest.New(t)
	return dialIn(t, ns), ns
}

func dialIn(t *testing.T, ns *netns.NS) *netlink.Conn {
	t.Helper()
	var c *netlink.Conn
	err := ns.Run(func() (err error) {
		c, err = netlink.Dial(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// create appends a message that makes a link of a kind.
func create(b *netlink.Batch, name, kind string, flags uint16) {
	b.Begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|flags, "create "+name)
	b.Header(make([]byte, unix.SizeofIfInfomsg)...)
	b.String(unix.IFLA_IFNAME, name)
	b.Nest(unix.IFLA_LINKINFO, func() { b.Bytes(unix.IFLA_INFO_KIND, []byte(kind)) })
	b.End()
}

// get appends a message that asks for a link.
func get(b *netlink.Batch, name string, flags uint16) {
	b.Begin(unix.RTM_GETLINK, flags, "look up "+name)
	b.Header(make([]byte, unix.SizeofIfInfomsg)...)
	b.String(unix.IFLA_IFNAME, name)
	b.End()
}

// names does the batch and returns the link names in the answers.
func names(c *netlink.Conn, b *netlink.Batch) (list []string, err error) {
	err = c.Do(b, func(m netlink.Message) {
		name := netlink.Attr(m.Payload[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME)
		list = append(list, fmt.Sprintf("%d:%s", m.Index, strings.TrimRight(string(name), "\x00")))
	})
	return list, err
}

func TestDoAnswersWithIndexes(t *testing.T) {
	c, _ := dial(t)
	for range 2 { // the second round has other sequence numbers
		b := &netlink.Batch{}
		get(b, "lo", 0)
		get(b, "none", unix.NLM_F_ACK)
		get(b, "lo", unix.NLM_F_ACK)
		list, err := names(c, b)
		if got := strings.Join(list, " "); got != "0:lo 2:lo" {
			t.Errorf("answers %s", got)
		}
		var refused *netlink.Error
		if !errors.As(err, &refused) || refused.Op != "look up none" || !errors.Is(err, unix.ENODEV) {
			t.Errorf("error %v, want that of the second message", err)
		}
	}
	if c.Sends != 2 {
		t.Errorf("Sends = %d, want 2", c.Sends)
	}
}

// A failure does not stop the messages behind it, and the first one is told.
func TestDoGoesOnAfterAFailure(t *testing.T) {
	c, _ := dial(t)
	b := &netlink.Batch{}
	create(b, "lo", "bridge", 0)
	create(b, "br1", "bridge", unix.NLM_F_ACK)
	create(b, "br1", "bridge", unix.NLM_F_ACK)
	err := c.Do(b, nil)
	var refused *netlink.Error
	if !errors.As(err, &refused) || refused.Op != "create lo" || !errors.Is(err, unix.EEXIST) {
		t.Errorf("error %v, want EEXIST of the first message", err)
	}
	b = &netlink.Batch{}
	get(b, "br1", unix.NLM_F_ACK)
	if list, err := names(c, b); len(list) != 1 || err != nil {
		t.Errorf("the second message was not done: %v, %v", list, err)
	}
}

func TestErrorCarriesTheKernelsWords(t *testing.T) {
	c, _ := dial(t)
	b := &netlink.Batch{}
	create(b, "x0", "nosuchkind", unix.NLM_F_ACK)
	err := c.Do(b, nil)
	var refused *netlink.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error %v", err)
	}
	if refused.Errno != unix.EOPNOTSUPP || refused.Text != "Unknown device type" {
		t.Errorf("got %#v", refused)
	}
	if want := "create x0: operation not supported (kernel: Unknown device type)"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if got := (&netlink.Error{Op: "x", Errno: unix.EPERM}).Error(); got != "x: operation not permitted" {
		t.Errorf("without words: %q", got)
	}
}

func TestEmptyBatch(t *testing.T) {
	c, _ := dial(t)
	if err := c.Do(&netlink.Batch{}, nil); err != nil || c.Sends != 0 {
		t.Errorf("error %v, %d sends", err, c.Sends)
	}
}

func TestDump(t *testing.T) {
	c, _ := dial(t)
	const n = 100 // more than one read holds
	for i := 0; i < n; i += 50 {
		b := &netlink.Batch{}
		for j := range 50 {
			create(b, fmt.Sprintf("br%d", i+j), "bridge", unix.NLM_F_ACK)
		}
		if err := c.Do(b, nil); err != nil {
			t.Fatal(err)
		}
	}
	b := &netlink.Batch{}
	b.Begin(unix.RTM_GETLINK, unix.NLM_F_DUMP, "list links")
	b.Header(make([]byte, unix.SizeofIfInfomsg)...)
	b.End()
	list, err := names(c, b)
	if len(list) != n+1 || err != nil {
		t.Errorf("%d links, want %d; error %v", len(list), n+1, err)
	}
}

// The kernel tells at the end of a dump what went wrong in it.
func TestDumpError(t *testing.T) {
	c, _ := dial(t)
	if err := unix.SetsockoptInt(c.FD(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		t.Fatal(err)
	}
	b := &netlink.Batch{}
	b.Begin(unix.RTM_GETADDR, unix.NLM_F_DUMP, "list addresses of link 4711")
	b.Header(unix.AF_INET, 0, 0, 0, 0x67, 0x12, 0, 0)
	b.End()
	if err := c.Do(b, nil); !errors.Is(err, unix.ENODEV) || !strings.HasPrefix(err.Error(), "list addresses of link 4711: ") {
		t.Errorf("error %v, want ENODEV", err)
	}
}

// A socket that hears multicasts tells the answers to its own questions from
// those to others', which may have the same numbers.
func TestDoOnASocketThatHears(t *testing.T) {
	c, ns := dial(t)
	if err := c.Join(unix.RTNLGRP_LINK); err != nil {
		t.Fatal(err)
	}
	other := dialIn(t, ns)
	for i := range 20 {
		b := &netlink.Batch{}
		create(b, fmt.Sprintf("br%d", i), "bridge", unix.NLM_F_ACK)
		if err := other.Do(b, nil); err != nil {
			t.Fatal(err)
		}
		b = &netlink.Batch{}
		get(b, "lo", unix.NLM_F_ACK)
		if list, err := names(c, b); len(list) != 1 || list[0] != "0:lo" || err != nil {
			t.Fatalf("answers %v, error %v", list, err)
		}
	}
}

func TestReceive(t *testing.T) {
	c, ns := dial(t)
	if err := c.Join(unix.RTNLGRP_LINK); err != nil {
		t.Fatal(err)
	}
	other := dialIn(t, ns)
	b := &netlink.Batch{}
	create(b, "br0", "bridge", unix.NLM_F_ACK)
	if err := other.Do(b, nil); err != nil {
		t.Fatal(err)
	}
	heard := ""
	err := c.Receive(func(m netlink.Message) bool {
		if m.Index != -1 || m.Type != unix.RTM_NEWLINK {
			return true
		}
		heard = strings.TrimRight(string(netlink.Attr(m.Payload[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME)), "\x00")
		return false
	})
	if heard != "br0" || err != nil {
		t.Errorf("heard of %q, error %v", heard, err)
	}
}

func TestReceiveTimesOut(t *testing.T) {
	c, _ := dial(t)
	for _, d := range []time.Duration{time.Millisecond, 0, -time.Second} { // 0 must not be "for ever"
		if err := c.SetTimeout(d); err != nil {
			t.Fatal(err)
		}
		if err := c.Receive(func(netlink.Message) bool { return false }); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("SetTimeout(%v): error %v, want EAGAIN", d, err)
		}
	}
}

// More than the socket's send buffer holds by default.
func TestLargeBatch(t *testing.T) {
	c, _ := dial(t)
	b := &netlink.Batch{}
	padding := make([]byte, 60<<10)
	for range 8 {
		b.Begin(unix.RTM_GETLINK, 0, "look up lo")
		b.Header(make([]byte, unix.SizeofIfInfomsg)...)
		b.String(unix.IFLA_IFNAME, "lo")
		b.Bytes(unix.IFLA_IFALIAS+200, padding)
		b.End()
	}
	get(b, "lo", unix.NLM_F_ACK)
	list, err := names(c, b)
	if len(list) != 9 || err != nil {
		t.Errorf("%d answers, error %v", len(list), err)
	}
}

// padded returns a batch of about size bytes, whose last message asks for lo.
func padded(size int) *netlink.Batch {
	b := &netlink.Batch{}
	padding := make([]byte, 60<<10)
	for b.Len() < size {
		b.Begin(unix.NLMSG_NOOP, 0, "do nothing")
		b.Header(make([]byte, unix.SizeofIfInfomsg)...)
		b.Bytes(unix.IFLA_IFALIAS+200, padding)
		b.End()
	}
	get(b, "lo", unix.NLM_F_ACK)
	return b
}

// Without CAP_NET_ADMIN the send buffer is bounded by a sysctl, which is
// doubled for the kernel's own needs.
func TestLargeBatchWithoutPrivilege(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	if err != nil {
		t.Fatal(err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if limit > 32<<20 {
		t.Skipf("net.core.wmem_max is %d: that much is not worth sending", limit)
	}
	withoutNetAdmin(t, func() {
		c, err := netlink.Dial(unix.NETLINK_ROUTE)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if list, err := names(c, padded(limit+limit/2)); len(list) != 1 || err != nil {
			t.Errorf("%d answers, error %v", len(list), err)
		}
		_, err = names(c, padded(2*limit+128<<10))
		if !errors.Is(err, unix.EMSGSIZE) || !strings.Contains(err.Error(), "raise net.core.wmem_max") {
			t.Errorf("too much: %v", err)
		}
	})
}

// withoutNetAdmin calls f on a thread that lacks CAP_NET_ADMIN, and ends it.
func withoutNetAdmin(t *testing.T, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		if err := unix.Capget(&header, &sets[0]); err != nil {
			t.Error(err)
			return
		}
		sets[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &sets[0]); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestClosedSocket(t *testing.T) {
	c, _ := dial(t)
	c.Close()
	b := &netlink.Batch{}
	get(b, "lo", unix.NLM_F_ACK)
	if err := c.Do(b, nil); err == nil {
		t.Error("no error")
	}
}

// A question needs no acknowledgement: its answer ends the wait, or its refusal.
func TestQuestionWithoutAck(t *testing.T) {
	c, _ := dial(t)
	for range 3 { // nothing is left over for the next one
		b := &netlink.Batch{}
		get(b, "lo", 0)
		if list, err := names(c, b); len(list) != 1 || list[0] != "0:lo" || err != nil {
			t.Errorf("answers %v, error %v", list, err)
		}
		b = &netlink.Batch{}
		get(b, "none", 0)
		if list, err := names(c, b); len(list) != 0 || !errors.Is(err, unix.ENODEV) {
			t.Errorf("answers %v, error %v; want ENODEV", list, err)
		}
	}
}

// One acknowledgement at the end is enough to hear of each refusal.
func TestAck(t *testing.T) {
	for last, want := range map[string]error{"br1": nil, "lo": unix.EEXIST} {
		c, _ := dial(t)
		b := &netlink.Batch{}
		create(b, "br0", "bridge", 0)
		create(b, last, "bridge", 0)
		b.Ack()
		if err := c.Do(b, nil); !errors.Is(err, want) {
			t.Errorf("last is %s: error %v, want %v", last, err, want)
		}
		b = &netlink.Batch{}
		get(b, "br0", 0)
		if list, err := names(c, b); len(list) != 1 || err != nil {
			t.Errorf("the first message was not done: %v, %v", list, err)
		}
	}
}

func TestExpect(t *testing.T) {
	tests := []struct {
		name  string
		errno unix.Errno
		want  error
		heard int
	}{
		{"the one that comes", unix.ENODEV, nil, 1},
		{"another one", unix.EEXIST, unix.ENODEV, 0},
		{"none", 0, unix.ENODEV, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := dial(t)
			b := &netlink.Batch{}
			get(b, "none", 0)
			b.Expect(tt.errno)
			get(b, "lo", 0)
			refused, answered := 0, 0
			err := c.Do(b, func(m netlink.Message) {
				switch {
				case m.Type == unix.NLMSG_ERROR && m.Index == 0:
					refused++
				case m.Type == unix.RTM_NEWLINK && m.Index == 1:
					answered++
				}
			})
			if !errors.Is(err, tt.want) || refused != tt.heard || answered != 1 {
				t.Errorf("error %v, heard %d refusals and %d answers; want %v, %d and 1", err, refused, answered, tt.want, tt.heard)
			}
		})
	}
}

// Each socket that is open has a buffer of its own, however many there are, and
// those that were closed leave theirs to others.
func TestManySockets(t *testing.T) {
	for range 3 {
		var open []*netlink.Conn
		for range 10 {
			c, _ := dial(t)
			open = append(open, c)
		}
		inner := 0
		var ask func(rest []*netlink.Conn)
		ask = func(rest []*netlink.Conn) {
			if len(rest) == 0 {
				return
			}
			b := &netlink.Batch{}
			get(b, "lo", 0)
			err := rest[0].Do(b, func(m netlink.Message) {
				before := string(m.Payload)
				ask(rest[1:]) // while this answer is read
				if string(m.Payload) != before {
					t.Error("another socket's answer is in this one's buffer")
				}
				inner++
			})
			if err != nil {
				t.Error(err)
			}
		}
		ask(open)
		if inner != len(open) {
			t.Errorf("%d answers, want %d", inner, len(open))
		}
		for _, c := range open {
			c.Close()
		}
	}
}

// TestForgedAnswer has another process of the namespace send what looks like the kernel's answer.
func TestForgedAnswer(t *testing.T) {
	c, ns := dial(t)
	if err := unix.Bind(c.FD(), &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(c.FD())
	if err != nil {
		t.Fatal(err)
	}
	forged := &netlink.Batch{}
	create(forged, "forged0", "bridge", 0)
	other := dialIn(t, ns)
	if err := unix.Sendto(other.FD(), other.Number(forged), 0, address); err != nil {
		t.Fatal(err)
	}
	b := &netlink.Batch{}
	get(b, "lo", unix.NLM_F_ACK)
	if list, err := names(c, b); len(list) != 1 || list[0] != "0:lo" || err != nil {
		t.Errorf("answers %v, error %v", list, err)
	}
}
