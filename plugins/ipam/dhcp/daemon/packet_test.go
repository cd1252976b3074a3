package daemon

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/plugins/ipam/dhcp"
)

var key = plugin.Key{Network: "lan", ContainerID: "web", IfName: "eth0"}

func ack(t testing.TB, options ...dhcpv4.Option) []byte {
	t.Helper()
	m, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeAck), dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 50)))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range options {
		m.UpdateOption(o)
	}
	return m.ToBytes()
}

func raw(code uint8, value ...byte) dhcpv4.Option {
	return dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), value)
}

// TestReport is about options that a server sends in an unusual form.
func TestReport(t *testing.T) {
	mask := raw(1, 255, 255, 255, 0)
	for name, c := range map[string]struct {
		options []dhcpv4.Option
		want    string
	}{
		"no mask":           {nil, ""},
		"a mask with holes": {[]dhcpv4.Option{raw(1, 255, 0, 255, 0)}, ""},
		"a router cut off":  {[]dhcpv4.Option{mask, raw(3, 192, 0)}, `{"ips":[{"address":"192.0.2.50/24"}]}`},
		"an odd old static route": {[]dhcpv4.Option{mask, raw(33, 10, 0, 0, 0, 192, 0, 2, 9, 11, 0, 0, 0)},
			`{"ips":[{"address":"192.0.2.50/24"}],"routes":[{"dst":"10.0.0.0/8","gw":"192.0.2.9"}]}`},
		"a classless route that can't be": {[]dhcpv4.Option{mask, raw(3, 192, 0, 2, 1), raw(121, 77, 1)},
			`{"ips":[{"address":"192.0.2.50/24","gateway":"192.0.2.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.1"}]}`},
		"a default route that is classless": {[]dhcpv4.Option{mask, raw(3, 192, 0, 2, 1), raw(121, 0, 192, 0, 2, 9)},
			`{"ips":[{"address":"192.0.2.50/24","gateway":"192.0.2.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.9"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := &v4{options: &dhcp.Options{}}
			h, err := f.parse(ack(t, c.options...))
			if err != nil {
				t.Fatal(err)
			}
			r, got := &types100.Result{}, ""
			if f.report(h, 1500, r) == nil {
				o := result.FormOf(r, plugin.CurrentVersion).Only("ips", "routes")
				got = string(o.JSON())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestIsDomain is about what servers send as a domain name.
func TestIsDomain(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, want := range map[string]bool{
		"a": true, "lan.example": true, "lan.example.": true, "_tcp.x-y.1": true, long: true, strings.Repeat(long+".", 3) + long[:61]: true,
		"": false, ".": false, "a..b": false, ".a": false, "a b": false, "a\nnameserver 192.0.2.66": false, "a\x1b[2J": false, "é.example": false,
		"a\x00b": false, long + "a": false, strings.Repeat(long+".", 3) + long[:62]: false, "a/b": false, "a;b": false,
	} {
		if isDomain(name) != want {
			t.Errorf("%q: %v, want %v", name, !want, want)
		}
	}
}

// FuzzACK reads any DHCPACK: what is accepted has an address, and can be written and read again.
func FuzzACK(f *testing.F) {
	f.Add(ack(f, raw(1, 255, 255, 255, 0), raw(51, 0, 0, 0, 9), raw(121, 16, 10, 60, 0, 0, 0, 0), raw(119, 1, 'a', 0xc0, 0)))
	f.Add(ack(f, raw(33, 1, 2, 3), raw(6, 1, 2, 3, 4, 5), raw(26, 1), raw(15)))
	f.Fuzz(func(t *testing.T, packet []byte) { readAny(t, &v4{options: &dhcp.Options{}}, packet) })
}

// FuzzReply does the same for DHCPv6.
func FuzzReply(f *testing.F) {
	v, leased := newV6(nil, key), netip.MustParseAddr("2001:db8:2::1000")
	m, err := v.message(dhcpv6.MessageTypeReply, leased, &dhcpv6.DUIDLL{LinkLayerAddr: make(net.HardwareAddr, 6)})
	if err != nil {
		f.Fatal(err)
	}
	m.Options.OneIANA().Options.OneAddress().ValidLifetime = time.Hour
	f.Add(m.ToBytes())
	f.Fuzz(func(t *testing.T, packet []byte) { readAny(t, v, packet) })
}

func readAny(t *testing.T, f family, packet []byte) {
	h, err := f.parse(packet)
	if err != nil {
		return
	}
	if !h.address.IsValid() || h.renew <= 0 || h.renew > h.rebind || h.rebind >= h.end {
		t.Errorf("%+v", h)
	}
	r := &types100.Result{}
	_ = f.report(h, 1500, r)
	for _, name := range append(r.DNS.Search, r.DNS.Domain) {
		if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			t.Errorf("the domain name %q", name)
		}
	}
	h.since = uptime()
	again, err := parseHolding(f, h.document(), true)
	if err != nil {
		t.Fatal(err)
	}
	if again.since != h.since.Truncate(time.Millisecond) || again.address != h.address || !bytes.Equal(again.packet, h.packet) {
		t.Errorf("%+v, was %+v", again, h)
	}
}

// FuzzRestore reads any file of a lease.
func FuzzRestore(f *testing.F) {
	d := &daemon{settings: &settings{}}
	q := &dhcp.Request{Command: plugin.Add, Key: key, Netns: "/run/netns/web", IPAM: conf.New()}
	l, err := d.newLease(q, &location{inode: 7, index: 8, mac: make(net.HardwareAddr, 6)})
	if err != nil {
		f.Fatal(err)
	}
	h, err := l.families[0].parse(ack(f))
	if err != nil {
		f.Fatal(err)
	}
	o := l.Document()
	o.Set("place", l.location.document())
	o.Set("ipv4", h.document())
	f.Add(o.JSON())
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := conf.Parse(text)
		if err != nil {
			return
		}
		q, err := dhcp.ParseRequest(o)
		if err != nil {
			return
		}
		l, err := d.restore(q, o)
		if err == nil && (len(l.get()) != len(l.families) || l.location.inode == 0) {
			t.Errorf("%d of %d families, place %+v", len(l.get()), len(l.families), l.location)
		}
	})
}

// TestTimes is when leases are extended.
func TestTimes(t *testing.T) {
	for _, c := range []struct{ renew, rebind, end, wantRenew, wantRebind, wantEnd time.Duration }{
		{0, 0, 8 * time.Hour, 4 * time.Hour, 7 * time.Hour, 8 * time.Hour},
		{time.Hour, 2 * time.Hour, 8 * time.Hour, time.Hour, 2 * time.Hour, 8 * time.Hour},
		{7 * time.Hour, time.Hour, 8 * time.Hour, 4 * time.Hour, 7 * time.Hour, 8 * time.Hour}, // not in order
		{time.Hour, 9 * time.Hour, 8 * time.Hour, 4 * time.Hour, 7 * time.Hour, 8 * time.Hour},
		{0, 0, 0, minTime / 2, minTime / 8 * 7, minTime},
	} {
		h := &holding{}
		h.setTimes(c.renew, c.rebind, c.end)
		if h.renew > c.wantRenew || h.renew < c.wantRenew-c.wantRenew/10-1 || h.rebind != c.wantRebind || h.end != c.wantEnd {
			t.Errorf("%+v: got %v, %v, %v", c, h.renew, h.rebind, h.end)
		}
	}
	h := &holding{since: time.Minute, renew: 4 * time.Hour, rebind: 7 * time.Hour, end: 8 * time.Hour}
	for _, c := range []struct {
		age   time.Duration
		tried phase
		phase phase
		pause time.Duration
	}{
		{time.Hour, fresh, fresh, 3 * time.Hour},
		{4 * time.Hour, fresh, renewing, 0},
		{5 * time.Hour, renewing, renewing, time.Hour},
		{7*time.Hour - 15*time.Second, renewing, renewing, minPause},
		{7*time.Hour - time.Second, renewing, renewing, time.Second},
		{7 * time.Hour, renewing, rebinding, 0},
		{7*time.Hour + time.Hour/2, rebinding, rebinding, time.Hour / 4},
		{9 * time.Hour, rebinding, expired, 0},
	} {
		now := h.since + c.age
		if phase, pause := h.phase(now), h.pause(now, c.tried); phase != c.phase || pause != c.pause {
			t.Errorf("%v: phase %v, pause %v, want %v, %v", c.age, phase, pause, c.phase, c.pause)
		}
	}
}

// bad is a family whose every method panics.
type bad struct{ family }

// TestPanics has no panic end the daemon, whatever it is in.
func TestPanics(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	q := &dhcp.Request{Command: plugin.Add, Key: key}
	l := &lease{Request: q, location: &location{}, families: []family{bad{}}, life: life, stop: stop}
	d := &daemon{settings: &settings{timeout: time.Second}, dir: dhcp.Dir(t.TempDir()), leases: leases{key: l}}
	_, asked := l.ask(bad{}, &holding{}, renewing, time.Second)
	_, _, answered := d.answer(t.Context(), nil)
	_, restored := d.restore(nil, nil)
	for what, err := range map[string]error{"ask": asked, "release": l.letGo(bad{}, &holding{}), "answer": answered, "restore": restored} {
		if err == nil || !strings.Contains(err.Error(), "bug") {
			t.Errorf("%s: %v, want that it is a bug", what, err)
		}
	}
	l.set([]*holding{{since: uptime(), renew: 0, rebind: time.Hour, end: time.Hour}})
	d.extendNow(l, 0) // as the goroutine does that keeps it
	if err := d.release(key); err != nil || d.leaseOf(key) != nil {
		t.Errorf("release: %v; the lease is %v", err, d.leaseOf(key))
	}
	ours, theirs := net.Pipe()
	go func() { _ = dhcp.WriteLine(theirs, conf.New()); _ = theirs.Close() }()
	if err := (*daemon)(nil).handle(t.Context(), ours); err != nil {
		t.Error("an empty request:", err)
	}
}
