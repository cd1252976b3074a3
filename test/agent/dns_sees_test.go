package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// asking asks the C library for names, as programs in a container do, and prints a line for each.
const asking = `
import json, socket, sys, time

def addresses(name):
    try:
        return " ".join(sorted({a[4][0] for a in socket.getaddrinfo(name.encode(), 80, type=socket.SOCK_STREAM)}))
    except socket.gaierror as e:
        return e.strerror

addresses("localhost") # which loads what the library needs, and asks nobody
for name in sys.argv[1:]:
    began = time.monotonic_ns()
    saw = addresses(name)
    print(json.dumps({"name": name, "saw": saw, "took": time.monotonic_ns() - began}))
`

// look is what became of a question.
type look struct {
	Name, By, Saw string
	Took          time.Duration
}

// By whom is asked, what the kernel says for a server that is not there, and what comes of one that says nothing.
const (
	byGateway = "a question to the gateway"
	byLibrary = "the container's C library"

	isClosed = "ECONNREFUSED"
	isSilent = "no answer"
)

// libraryLooks asks in the container, which has the servers of its result in a resolv.conf of its own.
func (c *inDNS) libraryLooks(names ...string) (list []look) {
	c.Helper()
	etc := c.TempDir()
	for name, text := range map[string]string{
		"resolv.conf":   "search " + strings.Join(c.result.DNS.Search, " ") + "\nnameserver " + strings.Join(c.result.DNS.Nameservers, "\nnameserver ") + "\n",
		"nsswitch.conf": "hosts: files dns\n",
		"hosts":         "127.0.0.1 localhost\n",
	} {
		if err := overwrite(filepath.Join(etc, name), text); err != nil {
			c.Error(err)
		}
	}
	args := append([]string{"--mount", "sh", "-ec", `mount --bind "$1" /etc; shift; exec python3 -c "$@"`, "sh", etc, asking}, names...)
	printed, err := c.Pod.Output(c.Command("unshare", args...))
	if err != nil {
		c.Error(err)
	}
	for line := range strings.Lines(printed) {
		l := look{By: byLibrary}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			c.Error(err)
		}
		list = append(list, l)
	}
	return list
}

// gatewayLook asks the gateway of the container's network alone.
func (c *inDNS) gatewayLook(name string, wait time.Duration) look {
	began := time.Now()
	a, err := exchange(&c.Namespace, "udp", gateway(c.network), query(name, dns.TypeA), wait)
	l := look{Name: name, By: byGateway, Took: time.Since(began)}
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		l.Saw = isClosed
	case err != nil:
		l.Saw = isSilent
	default:
		l.Saw = texts(a)
	}
	return l
}

// sight is something that is away. Of three names, a container's, one elsewhere and one on the container's list, it has what the gateway says, "" for the
// address, and whether the C library finds the address.
type sight struct {
	when    string
	servers []string                     // the node's when the containers come
	then    func(*netlab.Host, *running) // what happens after that
	gateway [3]string
	library [3]bool
	again   int // how often the name elsewhere is asked for once more, without a pause
}

// Servers of the outside.
const serverSilent, serverClosed, serverFails = "192.0.2.51", "192.0.2.52", "192.0.2.53"

var sights = []sight{
	{when: "all is there", servers: []string{netlab.OutsideIPv4},
		library: [3]bool{true, true, true}, again: 20},
	{when: "the agent is killed", servers: []string{netlab.OutsideIPv4},
		then:    func(_ *netlab.Host, a *running) { a.kill() },
		gateway: [3]string{isClosed, isClosed, isClosed}, library: [3]bool{false, true, false}, again: 10},
	{when: "the agent hangs", servers: []string{netlab.OutsideIPv4},
		then:    func(_ *netlab.Host, a *running) { a.suspend() },
		gateway: [3]string{isSilent, isSilent, isSilent}, library: [3]bool{false, true, false}},
	{when: "the node's server is silent", servers: []string{serverSilent},
		gateway: [3]string{"", "SERVFAIL", "SERVFAIL"}, library: [3]bool{true, false, false}},
	{when: "the node's server has its port closed", servers: []string{serverClosed},
		gateway: [3]string{"", "SERVFAIL", "SERVFAIL"}, library: [3]bool{true, false, false}},
	{when: "the node's server answers SERVFAIL", servers: []string{serverFails},
		gateway: [3]string{"", "SERVFAIL", "SERVFAIL"}, library: [3]bool{true, false, false}},
	{when: "the first of the node's servers is silent", servers: []string{serverSilent, netlab.OutsideIPv4},
		library: [3]bool{true, true, true}, again: 20},
	{when: "the node's resolv.conf is empty", servers: []string{netlab.OutsideIPv4},
		then:    func(h *netlab.Host, a *running) { h.MustRun(a, "truncate", "-s", "0", "/etc/resolv.conf") },
		gateway: [3]string{"", "SERVFAIL", "SERVFAIL"}, library: [3]bool{true, true, false}},
	{when: "the node's resolv.conf is gone", servers: []string{netlab.OutsideIPv4},
		then:    func(h *netlab.Host, a *running) { h.MustRun(a, "rm", "/etc/resolv.conf") },
		gateway: [3]string{"", "SERVFAIL", "SERVFAIL"}, library: [3]bool{true, true, false}},
}

// TestDNSSees prints what a container sees of names when something is away, and after how long. A container's name is answered whatever the node's servers
// do, and without the agent a container has the node's servers. With -parallel 1 nothing else has the machine busy.
func TestDNSSees(t *testing.T) {
	t.Parallel()
	for _, s := range sights {
		t.Run(s.when, func(t *testing.T) {
			t.Parallel()
			s.try(t)
		})
	}
}

func (s *sight) try(t *testing.T) {
	host, out := newNamedHost(t)
	ownEtc(t, host)
	for _, address := range []string{serverSilent, serverClosed, serverFails} {
		out.MustRun(t, "ip", "address", "add", address+"/24", "dev", "uplink0")
	}
	zone{"www.example.": hasIPv4("198.51.100.1"), "api.example.": hasIPv4("198.51.100.2")}.serve(t, out, netlab.OutsideIPv4)
	serveDNS(t, &out.Namespace, serverSilent, dns.HandlerFunc(func(dns.ResponseWriter, *dns.Msg) {}))
	serveDNS(t, &out.Namespace, serverFails, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
	}))
	resolvConf(t, host, s.servers...)
	a := start(t, host, "--dns")
	web, inner, outer := newNamed(t, host, 1, "web"), newNamed(t, host, 1, "inner"), newNamed(t, host, 1, "outer")
	web.awaitNames()
	withList := newListed(t, host, 2, "listed", strings.TrimSuffix(named(2), "]}")+`, {"type": "egress", "allow": ["api.example"]}]}`, nil)
	if s.then != nil {
		web.is("www.example", dns.TypeA, "198.51.100.1") // so the agent knows the node's servers
		s.then(host, a)
	}

	// Each question has a container of its own, since the kernel refuses a container's questions at a closed port only so often.
	var done sync.WaitGroup
	done.Go(func() { s.look(inner, 0, "web", web.v4) })
	done.Go(func() { s.look(outer, 1, "www.example", "198.51.100.1") })
	done.Go(func() { s.look(withList, 2, "api.example", "198.51.100.2") })
	done.Wait()
	if s.again > 0 {
		var took times
		for _, l := range outer.libraryLooks(slices.Repeat([]string{"www.example"}, s.again)...) {
			took = append(took, l.Took)
			if l.Saw != "198.51.100.1" {
				t.Errorf("asked once more it is %s", l.Saw)
			}
		}
		t.Logf("%s; www.example, asked by %s again and again: an answer after %v", s.when, byLibrary, took)
	}
}

// look asks for one of the three names.
func (s *sight) look(by *inDNS, i int, name, right string) {
	wait := netlab.Patience
	if s.gateway[i] == isSilent {
		wait = silence
	}
	atGateway := by.gatewayLook(name, wait)
	for _, l := range append([]look{atGateway}, by.libraryLooks(name)...) {
		by.Logf("%s; %s, asked by %s: %s, after %s", s.when, name, l.By, l.Saw, ms(l.Took))
		if is := slices.Contains(strings.Fields(l.Saw), right); l.By == byLibrary && is != s.library[i] {
			by.Errorf("the C library finds the address: %v, want %v", is, s.library[i])
		}
	}
	if want := cmp.Or(s.gateway[i], right); atGateway.Saw != want {
		by.Errorf("the gateway says %s of %s, want %s", atGateway.Saw, name, want)
	}
}

// suspend stops the agent for a while, and returns when none of its threads runs.
func (a *running) suspend() {
	a.Helper()
	a.signal(syscall.SIGSTOP)
	netlab.Until(a, "all threads of the agent to stop", func() bool {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", a.cmd.Process.Pid))
		return err == nil && len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err != nil || !strings.Contains(string(text), ") T ")
		})
	})
}

// hasIPv4 answers with an IPv4 address, and to a question for others with nothing.
func hasIPv4(address string) func(dns.ResponseWriter, *dns.Msg) {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Qtype == dns.TypeA {
			has(q.Question[0].Name+" 60 A "+address)(w, q)
			return
		}
		has()(w, q)
	}
}
