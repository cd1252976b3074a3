package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// silence is how long a test waits for an answer that need not come.
const silence = 300 * time.Millisecond

// named is network number i, with names in the domain dns.podman.
func named(i int) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "net%d", "plugins": [
		{"type": "bridge", "bridge": "names%[1]d", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
			"ranges": [[{"subnet": "10.70.%[1]d.0/24"}], [{"subnet": "fd00:70:%[1]d::/64"}]]}},
		{"type": "dnsname", "domainName": "dns.podman", "capabilities": {"aliases": true}}]}`, i)
}

func gateway(i int) string  { return fmt.Sprintf("10.70.%d.1", i) }
func gateway6(i int) string { return fmt.Sprintf("fd00:70:%d::1", i) }

// inDNS is a container with a name on a network.
type inDNS struct {
	*netlab.Pod
	testing.TB
	host    *netlab.Host
	network int
	v4, v6  string
	result  *types100.Result
	changed time.Time // when the last ADD or DEL returned
}

// newNamedHost returns a node whose DNS server is the outside.
func newNamedHost(t testing.TB) (*netlab.Host, *netlab.Outside) {
	t.Helper()
	host := netlab.NewHost(t)
	host.OwnProcesses(t)
	host.InstallPlugins(t, harmtest.Plugins...)
	out := host.NewOutside(t)
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	host.MustRun(t, "mount", "--bind", file, "/etc/resolv.conf")
	resolvConf(t, host, netlab.OutsideIPv4)
	return host, out
}

// resolvConf has the node ask these servers.
func resolvConf(t testing.TB, host *netlab.Host, servers ...string) {
	t.Helper()
	host.Feed(t, "nameserver "+strings.Join(servers, "\nnameserver ")+"\n", "tee", "/etc/resolv.conf")
}

// newNamed attaches a container with a name, as podman does.
func newNamed(t testing.TB, host *netlab.Host, network int, name string, aliases ...string) *inDNS {
	t.Helper()
	c := &inDNS{Pod: host.NewPod(t, fmt.Sprintf("%s-%d-%d", name, network, len(aliases))), TB: t, host: host}
	c.join(network, "eth0", name, aliases...)
	return c
}

// join attaches it to a network, and returns what comes of it.
func (c *inDNS) join(network int, ifName, name string, aliases ...string) *types100.Result {
	c.Helper()
	rt := c.RuntimeConf(map[string]any{"aliases": map[string][]string{fmt.Sprint("net", network): aliases}})
	rt.IfName, rt.Args = ifName, [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", name}}
	result, err := c.host.AddList(named(network), rt)
	c.changed = time.Now()
	if err != nil {
		c.Fatal(err)
	}
	v4, v6 := netlab.Addresses(result)
	c.network, c.v4, c.v6, c.result = network, v4.String(), v6.String(), result
	return result
}

// leave is DEL.
func (c *inDNS) leave() {
	c.Helper()
	err := c.host.DelList(named(c.network), c.RuntimeConf(nil))
	c.changed = time.Now()
	if err != nil {
		c.Fatal(err)
	}
}

// exchange sends one question, and waits for the answer.
func exchange(from *netlab.Namespace, network, server string, q *dns.Msg, wait time.Duration) (*dns.Msg, error) {
	ctx, stop := context.WithTimeout(context.Background(), wait)
	defer stop()
	conn, err := from.DialContext(ctx, network, net.JoinHostPort(server, "53"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	a, _, err := (&dns.Client{Net: network, Timeout: wait}).ExchangeWithConnContext(ctx, q, &dns.Conn{Conn: conn})
	return a, err
}

// socket is one to the gateway, for questions that must not wait for one.
type socket struct{ *dns.Conn }

func (c *inDNS) newSocket() socket {
	c.Helper()
	conn, err := c.DialContext(context.Background(), "udp", net.JoinHostPort(gateway(c.network), "53"))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close() })
	return socket{&dns.Conn{Conn: conn}}
}

func (s socket) ask(q *dns.Msg) (*dns.Msg, error) {
	a, _, err := (&dns.Client{Timeout: silence}).ExchangeWithConn(q, s.Conn)
	return a, err
}

// askByTCP asks the gateway by TCP.
func (c *inDNS) askByTCP(q *dns.Msg) (*dns.Msg, error) {
	return exchange(&c.Namespace, "tcp", gateway(c.network), q, silence)
}

// askUntil asks for the IPv4 address of a name again and again, with no pause, until there is an answer, and returns when that was. It has to be the wanted one.
func askUntil(ask func(q *dns.Msg) (*dns.Msg, error), name, want string) (at time.Time, err error) {
	for began := time.Now(); time.Since(began) < netlab.Patience; {
		a, failed := ask(query(name, dns.TypeA))
		at = time.Now()
		if failed == nil && texts(a) != want {
			return at, fmt.Errorf("%s: %q, want %q", name, texts(a), want)
		}
		if err = failed; err == nil {
			return at, nil
		}
	}
	return at, fmt.Errorf("%s: %w", name, err)
}

// isRefused makes sure that a server's port is closed, which the kernel says, and returns how long that took.
func (c *inDNS) isRefused(network, server, name string) time.Duration {
	c.Helper()
	began := time.Now()
	a, err := exchange(&c.Namespace, network, server, query(name, dns.TypeA), netlab.Patience)
	took := time.Since(began)
	if !errors.Is(err, unix.ECONNREFUSED) {
		c.Errorf("%s asks %s for %s by %s: %v, error %v", c.Pod.Name(), server, name, network, a, err)
	}
	return took
}

// times are how long something took, each time.
type times []time.Duration

// percent is what so many of a hundred did not exceed.
func (t times) percent(p int) time.Duration {
	slices.Sort(t)
	return t[min(len(t)*p/100, len(t)-1)]
}

func (t times) String() string {
	if len(t) == 0 {
		return "never"
	}
	return fmt.Sprintf("%d times, p50 %s, p99 %s, max %s", len(t), ms(t.percent(50)), ms(t.percent(99)), ms(t.percent(100)))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", inMS(d)) }

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func query(name string, kind uint16) *dns.Msg { return new(dns.Msg).SetQuestion(dns.Fqdn(name), kind) }

// ask asks the gateway of the container's network by UDP: a text with the code, or the sorted answers.
func (c *inDNS) ask(name string, kind uint16) string {
	c.Helper()
	return c.askAt("udp", gateway(c.network), name, kind)
}

func (c *inDNS) askAt(network, server, name string, kind uint16) string {
	c.Helper()
	a, err := exchange(&c.Namespace, network, server, query(name, kind), netlab.Patience)
	if err != nil {
		c.Fatalf("%s asks %s for %s: %v", c.Pod.Name(), server, name, err)
	}
	return texts(a)
}

func texts(a *dns.Msg) string {
	if a.Rcode != dns.RcodeSuccess {
		return dns.RcodeToString[a.Rcode]
	}
	var list []string
	for _, rr := range a.Answer {
		list = append(list, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// is makes sure of an answer of the gateway of the container's network.
func (c *inDNS) is(name string, kind uint16, want string) {
	c.Helper()
	c.isAt("udp", gateway(c.network), name, kind, want)
}

func (c *inDNS) isAt(network, server, name string, kind uint16, want string) {
	c.Helper()
	if got := c.inTime(network, server, name, kind, want); got != want {
		c.Errorf("%s asks %s for %s, type %s, by %s: %q, want %q", c.Pod.Name(), server, name, dns.TypeToString[kind], network, got, want)
	}
}

// inTime asks again when the agent has waited in vain for the node's servers, for four seconds, if that is not what is wanted: on a busy machine those of
// the test may be late. A SERVFAIL that comes sooner has another reason.
func (c *inDNS) inTime(network, server, name string, kind uint16, want string) (got string) {
	c.Helper()
	netlab.Eventually(c, func() error {
		began := time.Now()
		got = c.askAt(network, server, name, kind)
		wasLate := time.Since(began) > 3*time.Second
		if got == "SERVFAIL" && got != want && wasLate {
			return fmt.Errorf("%s: %q", name, got)
		}
		return nil
	})
	return got
}

// awaitNames waits until somebody answers at the gateway of the container's first network: the agent may hear of that a moment after ADD. It asks by TCP: of
// questions by UDP at a closed port the kernel refuses six and then one a second (net.ipv4.icmp_ratelimit), and says nothing to the others.
func (c *inDNS) awaitNames() {
	c.Helper()
	netlab.Eventually(c, func() error {
		_, err := exchange(&c.Namespace, "tcp", gateway(c.network), query("localhost.dns.podman", dns.TypeA), netlab.Patience)
		return err
	})
}

// zone is what a server of the outside answers, by the name that is asked for.
type zone map[string]func(w dns.ResponseWriter, q *dns.Msg)

// serve serves a zone at an address of the outside.
func (z zone) serve(t testing.TB, out *netlab.Outside, address string) {
	t.Helper()
	serveDNS(t, &out.Namespace, address, z)
}

// ServeDNS implements dns.Handler. Other names are not there.
func (z zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	if answer := z[q.Question[0].Name]; answer != nil {
		answer(w, q)
		return
	}
	_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeNameError))
}

// serveDNS answers at an address by UDP and TCP.
func serveDNS(t testing.TB, in *netlab.Namespace, address string, handler dns.Handler) {
	t.Helper()
	var packets net.PacketConn
	var streams net.Listener
	var err error
	in.Do(func() {
		var failed error
		packets, err = net.ListenPacket("udp", net.JoinHostPort(address, "53"))
		streams, failed = net.Listen("tcp", net.JoinHostPort(address, "53"))
		err = errors.Join(err, failed)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: streams, Handler: handler}} {
		started, ended := make(chan struct{}), make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(ended)
			_ = server.ActivateAndServe()
		}()
		<-started
		t.Cleanup(func() {
			_ = server.Shutdown()
			<-ended
		})
	}
}

// has answers with records.
func has(records ...string) func(dns.ResponseWriter, *dns.Msg) {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		for _, text := range records {
			rr, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			a.Answer = append(a.Answer, rr)
		}
		if w.RemoteAddr().Network() == "udp" {
			a.Truncate(dns.MinMsgSize)
		}
		_ = w.WriteMsg(a)
	}
}

// addresses returns the addresses of a result's DNS servers.
func nameservers(r *types100.Result) string { return strings.Join(r.DNS.Nameservers, " ") }

func reverse(address string) string {
	name, err := dns.ReverseAddr(netip.MustParseAddr(address).String())
	if err != nil {
		panic(err)
	}
	return name
}
