package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var portMaps = netfiltertest.PortMaps

// load puts entries, each as arguments of conntrack -I, into the host's table.
func load(t testing.TB, h *netlab.Host, entries ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "entries")
	if err := os.WriteFile(file, []byte("-I "+strings.Join(entries, "\n-I ")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.MustRun(t, "conntrack", "-R", file)
}

// clients returns the source ports of the entries that the host's table has, by which the tests know them.
func clients(t testing.TB, h *netlab.Host) (ports []string) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		for line := range strings.Lines(h.MustRun(t, "conntrack", "-L", "-f", family)) {
			_, behind, _ := strings.Cut(line, " sport=")
			port, _, _ := strings.Cut(behind, " ")
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return ports
}

// entryOf is the arguments with which conntrack(8) makes an entry for a flow from
// a client's port to a host's, which the address and port at leadsTo answers.
func entryOf(protocol, from, to, leadsTo string, more ...string) string {
	src, sport, _ := strings.Cut(from, "/")
	dst, dport, _ := strings.Cut(to, "/")
	rsrc, rport, _ := strings.Cut(leadsTo, "/")
	state := map[string]string{"udp": "", "tcp": " --state ESTABLISHED", "sctp": " --state ESTABLISHED --orig-vtag 1 --reply-vtag 2"}
	args := fmt.Sprintf("-t 600 -p %s -s %s --sport %s -d %s --dport %s -r %s --reply-port-src %s -q %s --reply-port-dst %s -u SEEN_REPLY%s",
		protocol, src, sport, dst, dport, rsrc, rport, src, sport, state[protocol])
	return strings.Join(append([]string{args}, more...), " ")
}

// entries are those of TestFlush. Their clients' ports tell them apart.
func entries() []string {
	const web, old, host, host6 = "10.1.0.2", "10.1.0.9", netlab.HostIPv4, netlab.HostIPv6
	return []string{
		// To the host's port 5353, from before it was published.
		entryOf("udp", "192.0.2.254/4001", host+"/5353", host+"/5353"),
		entryOf("udp", "127.0.0.1/4002", "127.0.0.1/5353", "127.0.0.1/5353"),
		entryOf("udp", host+"/4003", host+"/5353", host+"/5353"),
		entryOf("udp", "127.0.0.1/4004", "127.9.9.9/5353", "127.9.9.9/5353"),
		// To a container that is gone.
		entryOf("udp", "192.0.2.254/4011", host+"/5353", old+"/53"),
		entryOf("udp", "192.0.2.254/4012", host+"/5353", old+"/53", "-w 7"),
		entryOf("udp", "192.0.2.254/4013", host+"/5353", old+"/53", "--orig-zone 8"),
		// To the container.
		entryOf("udp", "192.0.2.254/4021", host+"/5353", web+"/53"),
		entryOf("udp", "127.0.0.1/4022", "127.0.0.1/5353", web+"/53"),
		entryOf("udp", "192.0.2.254/4023", host+"/5353", web+"/54"), // another port of it
		// None of ours.
		entryOf("udp", "192.0.2.254/4031", host+"/5354", host+"/5354"),
		entryOf("udp", "192.0.2.254/4032", host+"/53", old+"/5353"),
		entryOf("udp", web+"/4033", "192.0.2.254/5353", "192.0.2.254/5353"),       // passes the host
		entryOf("udp", web+"/4034", "224.0.0.251/5353", "224.0.0.251/5353"),       // multicast
		entryOf("udp", "10.1.0.3/4035", web+"/5353", web+"/5353"),                 // to the container itself
		entryOf("udp", web+"/5353", "192.0.2.254/4036", "192.0.2.254/4036"),       // from the container
		entryOf("udp", "10.1.0.3/4037", "203.0.113.9/5353", old+"/53"),            // another machine's address
		entryOf("tcp", "192.0.2.254/4038", host+"/5353", old+"/53"),               // TCP
		entryOf("sctp", "192.0.2.254/4041", host+"/5353", old+"/53"),              // SCTP
		entryOf("sctp", "192.0.2.254/4042", host+"/5353", web+"/53"),              // SCTP
		entryOf("sctp", "192.0.2.254/4043", host+"/5355", old+"/53"),              // SCTP
		entryOf("udp", "2001:db8:2::254/4061", host6+"/5353", host6+"/5353"),      // IPv6
		entryOf("udp", "2001:db8:2::254/4062", host6+"/5353", "fd00:1::9/53"),     // IPv6
		entryOf("udp", "2001:db8:2::254/4063", host6+"/5353", "fd00:1::2/53"),     // IPv6
		entryOf("udp", "::1/4064", "::1/5353", "::1/5353"),                        // IPv6
		entryOf("udp", "fd00:1::2/4065", "2001:db8:2::254/5353", "2001:db8::9/1"), // IPv6
	}
}

func TestFlush(t *testing.T) {
	tests := []struct {
		name  string
		flush func(context.Context, []spec.PortMap) error
		ports []string
		gone  string // clients' ports
	}{
		{"published on an address", FlushPublished, []string{"udp/192.0.2.1:5353=10.1.0.2:53"}, "4001 4003 4011 4012 4013 4023"},
		{"published on 127.0.0.1", FlushPublished, []string{"udp/127.0.0.1:5353=10.1.0.2:53"}, "4002"},
		{"published on an address and on all others", FlushPublished,
			[]string{"udp/5353=10.1.0.2:53", "udp/192.0.2.1:5353=10.1.0.2:54"}, "4001 4002 4003 4004 4011 4012 4013 4021"},
		{"published with other ports", FlushPublished, []string{"udp/5354=10.1.0.2:53", "udp/1=10.1.0.2:1", "udp/5353=10.1.0.2:53"},
			"4001 4002 4003 4004 4011 4012 4013 4023 4031"},
		{"published on both", FlushPublished, []string{"udp/5353=10.1.0.2:53", "udp/5353=[fd00:1::2]:53"},
			"4001 4002 4003 4004 4011 4012 4013 4023 4061 4062 4064"},
		{"published over SCTP and TCP", FlushPublished, []string{"sctp/5353=10.1.0.2:53", "tcp/5353=10.1.0.2:53"}, "4041"},
		{"withdrawn", FlushWithdrawn, []string{"udp/5353=10.1.0.9:53"}, "4011 4012 4013 4037"},
		{"withdrawn from an address", FlushWithdrawn, []string{"udp/127.0.0.1:5353=10.1.0.2:53", "udp/127.0.0.1:5353=10.1.0.9:53"}, "4022"},
		{"withdrawn with other ports", FlushWithdrawn, []string{"udp/5353=10.1.0.2:53", "udp/53=10.1.0.9:5353"}, "4021 4022 4023 4032"},
		{"withdrawn from IPv6, SCTP and TCP", FlushWithdrawn, []string{"udp/5353=[fd00:1::9]:53", "sctp/5353=10.1.0.9:53", "tcp/5353=10.1.0.9:53"}, "4041 4062"},
		{"none", FlushPublished, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			h.NewOutside(t)
			load(t, h, entries()...)
			before := clients(t, h)
			if len(before) != len(entries()) {
				t.Fatalf("%d entries, want %d: %v", len(before), len(entries()), before)
			}
			h.Do(func() {
				if err := tt.flush(t.Context(), portMaps(t, tt.ports...)); err != nil {
					t.Error(err)
				}
			})
			after := clients(t, h)
			gone := slices.DeleteFunc(before, func(port string) bool { return slices.Contains(after, port) })
			if got := strings.Join(gone, " "); got != tt.gone {
				t.Errorf("forgotten: %s\nwant:      %s", got, tt.gone)
			}
		})
	}
}

// More than one listing's message holds, and more than one flush would answer
// if it asked all at once.
func TestFlushMany(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	h.NewOutside(t)
	const n = 2000
	var many []string
	for i := range n {
		many = append(many, entryOf("udp", fmt.Sprintf("192.0.2.254/%d", 10000+i), netlab.HostIPv4+"/5353", "10.1.0.9/53"))
	}
	load(t, h, append(many, entryOf("udp", "192.0.2.254/4000", netlab.HostIPv4+"/5353", "10.1.0.2/53"))...)
	h.Do(func() {
		if err := FlushPublished(t.Context(), portMaps(t, "udp/5353=10.1.0.2:53")); err != nil {
			t.Error(err)
		}
	})
	if left := clients(t, h); !slices.Equal(left, []string{"4000"}) {
		t.Errorf("%d entries left, want one of the container's", len(left))
	}
}

func TestFlushStops(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	load(t, h, entryOf("udp", "192.0.2.254/4000", netlab.HostIPv4+"/5353", "10.1.0.9/53"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Do(func() {
		if err := FlushPublished(ctx, portMaps(t, "udp/"+netlab.HostIPv4+":5353=10.1.0.2:53")); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
	})
	if left := clients(t, h); len(left) != 1 {
		t.Errorf("entries left: %v, want all", left)
	}
}

// An entry that made place for another one of the same tuple is another flow.
func TestForgetOnlyTheEntryThatWasListed(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	load(t, h, entryOf("udp", "192.0.2.254/4000", netlab.HostIPv4+"/5353", "10.1.0.9/53"))
	h.Do(func() {
		flows, err := list(unix.AF_INET, ofProtocol(unix.IPPROTO_UDP), func(flow) bool { return true })
		if err != nil || len(flows) != 1 {
			t.Errorf("flows %v, error %v, want one", flows, err)
			return
		}
		id := attribute(flows[0].entry[nl.SizeofNfgenmsg:], nl.CTA_ID)
		for _, wrong := range []byte{1, 0, 0} { // the third time it is gone
			id[0] ^= wrong
			if err := flows[0].forget(); err != nil {
				t.Error(err)
			}
			id[0] ^= wrong
			if left := clients(t, h); len(left) != int(wrong) {
				t.Errorf("entries %v are left, want %d", left, wrong)
			}
		}
	})
}
