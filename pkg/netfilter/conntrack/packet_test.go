package conntrack

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestSocketIsAnswered publishes a port while a client, which keeps its socket
// and so its source port, is talking to the host's own server on it, and
// withdraws it again.
func TestSocketIsAnswered(t *testing.T) {
	tests := []struct {
		name, target, container, gateway, rules string
	}{
		{"IPv4", netlab.HostIPv4, "10.1.0.2", "10.1.0.1", "ip"},
		{"IPv6", netlab.HostIPv6, "fd00:1::2", "fd00:1::1", "ip6"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			outside := h.NewOutside(t)
			web := connect(t, h, tt.container, tt.gateway)
			container := netip.AddrPortFrom(netip.MustParseAddr(tt.container), 53)
			target := netip.AddrPortFrom(netip.MustParseAddr(tt.target), 5353).String()
			web.ServeUDP(t, container.String())
			h.ServeUDP(t, ":5353")
			h.MustRun(t, "nft", "add table "+tt.rules+" t; add chain "+tt.rules+" t pre { type nat hook prerouting priority -90; }")
			ports := []spec.PortMap{{Protocol: 17, HostPort: 5353, Container: container}}
			track(t, h)

			client := newClient(t, &outside.Namespace, target)
			client.mustHear(t, "host")
			h.MustRun(t, "nft", "add rule "+tt.rules+" t pre udp dport 5353 dnat to "+container.String())
			client.mustHear(t, "host") // the flow goes on as it began
			h.Do(func() {
				if err := FlushPublished(t.Context(), ports); err != nil {
					t.Error(err)
				}
			})
			client.mustHear(t, "web")
			h.MustRun(t, "nft", "flush chain "+tt.rules+" t pre")
			client.mustHear(t, "web")
			h.Do(func() {
				if err := FlushWithdrawn(t.Context(), ports); err != nil {
					t.Error(err)
				}
			})
			client.mustHear(t, "host")
		})
	}
}

// The host's own clients have flows too.
func TestHostsOwnFlows(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	h.NewOutside(t)
	h.ServeUDP(t, ":5353")
	track(t, h)
	for _, target := range []string{"127.0.0.1", netlab.HostIPv4, "::1", netlab.HostIPv6} {
		newClient(t, &h.Namespace, netip.AddrPortFrom(netip.MustParseAddr(target), 5353).String()).mustHear(t, "host")
	}
	if had := clients(t, h, "udp"); len(had) != 4 {
		t.Fatalf("%d entries, want 4", len(had))
	}
	h.Do(func() {
		if err := FlushPublished(t.Context(), portMaps(t, "udp/5353=10.1.0.2:53", "udp/5353=[fd00:1::2]:53")); err != nil {
			t.Error(err)
		}
	})
	if left := clients(t, h, "udp"); len(left) != 0 {
		t.Errorf("entries left: %v", left)
	}
}

// track makes the host track connections, which a namespace does when a rule
// asks for their state.
func track(t *testing.T, h *netlab.Host) {
	t.Helper()
	h.MustRun(t, "nft", "add table inet track; add chain inet track in { type filter hook input priority 0; }; "+
		"add rule inet track in ct state established accept")
}

// connect gives the host a pod called web that it routes packets to.
func connect(t *testing.T, h *netlab.Host, address, gateway string) *netlab.Pod {
	t.Helper()
	bits, noDAD := "/24", []string{}
	if strings.Contains(address, ":") {
		bits, noDAD = "/64", []string{"nodad"}
	}
	web := h.NewPod(t, "web")
	h.MustRun(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.default.accept_dad=0")
	web.MustRun(t, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0") // or neighbours are not asked for a second
	h.MustRun(t, "ip", "link", "add", "web0", "up", "type", "veth", "peer", "name", "eth0", "netns", "web")
	h.MustRun(t, "ip", append([]string{"addr", "add", gateway + bits, "dev", "web0"}, noDAD...)...)
	web.MustRun(t, "ip", "link", "set", "eth0", "up")
	web.MustRun(t, "ip", append([]string{"addr", "add", address + bits, "dev", "eth0"}, noDAD...)...)
	web.MustRun(t, "ip", "route", "add", "default", "via", gateway)
	return web
}

// client is a socket whose source port stays the same.
type client struct{ net.Conn }

func newClient(t *testing.T, from *netlab.Namespace, target string) client {
	t.Helper()
	conn, err := from.DialContext(t.Context(), "udp", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn}
}

// mustHear asks until there is an answer, as neighbours may need a moment, and
// tells whose it must be.
func (c client) mustHear(t *testing.T, name string) {
	t.Helper()
	answer := make([]byte, 512)
	n, err := 0, error(nil)
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	for err == nil { // answers that came late, to what was asked before
		_, err = c.Read(answer)
	}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		if _, err = io.WriteString(c, "hello\n"); err != nil {
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if n, err = c.Read(answer); err == nil {
			break
		}
	}
	if got := string(answer[:n]); err != nil || !strings.HasPrefix(got, name+" saw ") {
		t.Fatalf("heard %q, error %v; want an answer of %s", got, err, name)
	}
}
