package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestTraffic sends packets along every path a container's traffic takes, with
// netfilter looking at what crosses a bridge (br_netfilter, which Kubernetes
// nodes have) and without. With it a container reaches its own published port
// by the bridge alone, which takes hairpin mode.
func TestTraffic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, filter, conflist string }{
		{"routed", "0", demo},
		{"bridged", "1", strings.Replace(demo, `"ipMasq"`, `"hairpinMode": true, "ipMasq"`, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testTraffic(t, c.filter, c.conflist)
		})
	}
}

func testTraffic(t *testing.T, filter, demo string) {
	if filter == "1" {
		netlab.Need(t, netlab.BridgeNetfilter)
	}
	host, outside := node(t)
	for _, key := range []string{"iptables", "ip6tables"} {
		// Absent without br_netfilter, which is the same as 0.
		if _, err := host.Output(host.Command("sysctl", "-qw", "net.bridge.bridge-nf-call-"+key+"="+filter)); err != nil && filter == "1" {
			t.Fatal(err)
		}
	}
	web := attach(t, host, demo, "web", ports("8080:80/tcp", "8081:81/tcp", "5353:53/udp"))
	other := attach(t, host, demo, "other", nil)
	for _, address := range []string{"[::]:80", "[::]:81"} {
		web.ServeTCP(t, address)
	}
	web.ServeUDP(t, "[::]:53")
	outside.ServeTCP(t, "[::]:80")
	outside.ServeTCP(t, "[::]:8080")

	hostV4, hostV6 := netip.MustParseAddr(netlab.HostIPv4), netip.MustParseAddr(netlab.HostIPv6)
	outV4, outV6 := netip.MustParseAddr(netlab.OutsideIPv4), netip.MustParseAddr(netlab.OutsideIPv6)
	gwV4, gwV6 := netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("fd00:88::1")

	for _, gw := range []netip.Addr{gwV4, gwV6} {
		if err := web.Ping(gw.String(), timeout); err != nil {
			t.Errorf("pod to gateway %v: %v", gw, err)
		}
	}

	pod, peer, node, out := &web.Namespace, &other.Namespace, &host.Namespace, &outside.Namespace
	for _, c := range []struct {
		name   string
		from   *netlab.Namespace
		to     string
		answer string // who answers, and whom it sees
	}{
		{"pod to pod v4", peer, at(web.v4, 80), "web saw " + other.v4.String()},
		{"pod to pod v6", peer, at(web.v6, 80), "web saw " + other.v6.String()},
		{"pod to outside v4 is masqueraded", pod, at(outV4, 80), "outside saw " + hostV4.String()},
		{"pod to outside v6 is masqueraded", pod, at(outV6, 80), "outside saw " + hostV6.String()},
		{"pod to a published port's number elsewhere v4", pod, at(outV4, 8080), "outside saw " + hostV4.String()},
		{"pod to a published port's number elsewhere v6", pod, at(outV6, 8080), "outside saw " + hostV6.String()},
		{"host to pod v4", node, at(web.v4, 80), "web saw " + gwV4.String()},
		{"host to pod v6", node, at(web.v6, 80), "web saw " + gwV6.String()},
		{"outside to published port v4 keeps its source", out, at(hostV4, 8080), "web saw " + outV4.String()},
		{"outside to published port v6 keeps its source", out, at(hostV6, 8080), "web saw " + outV6.String()},
		{"outside to second published port v4", out, at(hostV4, 8081), "web saw " + outV4.String()},
		{"outside to second published port v6", out, at(hostV6, 8081), "web saw " + outV6.String()},
		{"host to published port by its address v4", node, at(hostV4, 8080), "web saw "},
		{"host to published port by its address v6", node, at(hostV6, 8080), "web saw "},
		{"host to published port by 127.0.0.1", node, "127.0.0.1:8080", "web saw " + gwV4.String()},
		{"hairpin v4", pod, at(hostV4, 8080), "web saw " + gwV4.String()},
		{"hairpin v6", pod, at(hostV6, 8080), "web saw " + gwV6.String()},
		{"other pod through the host port v4", peer, at(hostV4, 8080), "web saw " + gwV4.String()},
		{"other pod through the host port v6", peer, at(hostV6, 8080), "web saw " + gwV6.String()},
		{"other pod through the gateway's port v4", peer, at(gwV4, 8080), "web saw " + gwV4.String()},
		{"other pod through the gateway's port v6", peer, at(gwV6, 8080), "web saw " + gwV6.String()},
		{"udp from outside v4", out, at(hostV4, 5353), "web saw " + outV4.String()},
		{"udp from outside v6", out, at(hostV6, 5353), "web saw " + outV6.String()},
		{"udp from host by 127.0.0.1", node, "127.0.0.1:5353", "web saw " + gwV4.String()},
		{"udp from host by its address v4", node, at(hostV4, 5353), "web saw "},
		{"udp from host by its address v6", node, at(hostV6, 5353), "web saw "},
		{"udp hairpin v4", pod, at(hostV4, 5353), "web saw " + gwV4.String()},
		{"udp hairpin v6", pod, at(hostV6, 5353), "web saw " + gwV6.String()},
		{"udp from other pod v4", peer, at(hostV4, 5353), "web saw " + gwV4.String()},
		{"udp from other pod v6", peer, at(hostV6, 5353), "web saw " + gwV6.String()},
	} {
		dial := c.from.DialTCP
		if strings.HasPrefix(c.name, "udp") {
			dial = c.from.DialUDP
		}
		if reply, err := dial(c.to, timeout); err != nil || !sees(reply, c.answer) {
			t.Errorf("%s: %s to %s: answer %q, %v; want %q", c.name, c.from.Name(), c.to, reply, err, c.answer)
		}
	}

	// What is not published does not answer, and what is not any more neither.
	if reply, err := outside.DialTCP(at(hostV4, 80), refusal); err == nil {
		t.Errorf("port 80 of the host is not published and answers %q", reply)
	}
	detach(t, host, demo, web, ports("8080:80/tcp", "8081:81/tcp", "5353:53/udp"))
	for _, to := range []string{at(hostV4, 8080), at(hostV6, 8080)} {
		if reply, err := outside.DialTCP(to, refusal); err == nil {
			t.Errorf("after DEL %s answers %q", to, reply)
		}
	}
}

// sees compares "NAME saw ADDRESS:PORT" with "NAME saw ADDRESS".
func sees(reply, want string) bool {
	reply = strings.NewReplacer("[", "", "]", "").Replace(strings.TrimSpace(reply))
	return strings.HasPrefix(reply, want)
}
