package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/test/netlab"
)

// silence is how long a packet is waited for that must not arrive, or before it is sent again.
const silence = time.Second

// patience is how long what should happen may take. Others' plugins fail many rows, each by waiting for all of it.
func (l *lab) patience() time.Duration {
	if l.suite.ours {
		return netlab.Patience
	}
	return netlab.Patience / 9
}

// eventually makes sure that something comes to hold: f returns what is still wrong.
func (l *lab) eventually(f func() string) {
	err := netlab.AwaitFor(l.patience(), func() error {
		if wrong := f(); wrong != "" {
			return errors.New(wrong)
		}
		return nil
	})
	if err != nil {
		l.Error(err)
	}
}

// isUp makes sure that a link is up. The kernel looks for its carrier some time after it is set up.
func (l *lab) isUp(in *netlab.Namespace, name string) {
	l.eventually(func() string {
		if link := l.attributes(in, name); link == nil || link.OperState != netlink.OperUp {
			return name + " is not up"
		}
		return ""
	})
}

// stopIfFailed ends a row of many cases at the first that fails. Plugins that fail one mostly fail many, some by a time limit each.
func (l *lab) stopIfFailed() {
	if len(l.outcome.failures) > 0 {
		runtime.Goexit()
	}
}

// shows makes sure that a text has all parts.
func (l *lab) shows(text string, parts ...string) {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			l.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// lacks makes sure that a text has none of the parts.
func (l *lab) lacks(text string, parts ...string) {
	for _, part := range parts {
		if strings.Contains(text, part) {
			l.Errorf("%q is in:\n%s", part, text)
		}
	}
}

// same makes sure that what was got is what is wanted.
func (l *lab) same(got, want any) {
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("-want +got:\n%s", diff)
	}
}

// noLegacyTables makes sure that nobody has asked iptables-legacy for a table: that makes it.
func (l *lab) noLegacyTables() {
	for _, family := range []string{"ip", "ip6"} {
		l.host.Do(func() {
			names, _ := os.ReadFile("/proc/thread-self/net/" + family + "_tables_names") // which not every kernel has
			l.same(string(names), "")
		})
	}
}

// In a result, what no configuration settles: the names of host ends, and MAC addresses.
var (
	anyVeth = regexp.MustCompile(`\bveth[0-9a-f]+\b`)
	anyMAC  = regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
)

// printed makes sure that a document is this to the byte, but for the order of keys and white space, which JSON leaves open. Host
// ends are vethX in want, and MAC addresses that want does not have MAC.
func (l *lab) printed(got, want string) {
	got = anyVeth.ReplaceAllString(got, "vethX")
	got = anyMAC.ReplaceAllStringFunc(got, func(mac string) string {
		if strings.Contains(want, mac) {
			return mac
		}
		return "MAC"
	})
	l.same(tidy(got), tidy(want))
}

// tidy returns a JSON document with sorted keys, a line for each value.
func tidy(document string) string {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber() // 1 is not 1.0
	var value any
	if decoder.Decode(&value) != nil || decoder.More() {
		return document
	}
	out, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err)
	}
	return string(out)
}

// decode decodes what a program printed as JSON.
func (l *lab) decode(printed string) (list []map[string]any) {
	if err := json.Unmarshal([]byte(printed), &list); err != nil {
		l.Fatalf("%v: %s", err, printed)
	}
	return list
}

// link returns what ip says of a link; nil if there is none. fields of linkinfo are found by their own names.
func (l *lab) link(n *netlab.Namespace, name string) map[string]any {
	printed, err := n.Output(n.Command("ip", "-d", "-j", "link", "show", "dev", name))
	if err != nil {
		return nil
	}
	link := l.decode(printed)[0]
	if info, ok := link["linkinfo"].(map[string]any); ok {
		for _, key := range []string{"info_data", "info_slave_data"} {
			data, _ := info[key].(map[string]any)
			for k, v := range data {
				link[k] = v
			}
		}
	}
	return link
}

// has makes sure that a link has these values, each after its name in what ip prints as JSON.
func (l *lab) has(n *netlab.Namespace, link string, namesAndValues ...any) {
	is := l.link(n, link)
	for i := 0; i < len(namesAndValues); i += 2 {
		name := namesAndValues[i].(string)
		if got, want := fmt.Sprint(is[name]), fmt.Sprint(namesAndValues[i+1]); got != want {
			l.Errorf("%s of %s is %s, want %s", name, link, got, want)
		}
	}
}

// gone makes sure that there is no link of a name.
func (l *lab) gone(n *netlab.Namespace, name string) {
	if attributes := l.attributes(n, name); attributes != nil {
		l.Errorf("there still is %s in %s", name, n.Name())
	}
}

// attributes returns those of a link that the kernel itself says; nil if there is none.
func (l *lab) attributes(n *netlab.Namespace, name string) *netlink.LinkAttrs {
	if link := l.named(n, name); link != nil {
		return link.Attrs()
	}
	return nil
}

// named returns a link as the kernel itself has it; nil if there is none.
func (l *lab) named(n *netlab.Namespace, name string) (link netlink.Link) {
	n.Do(func() {
		found, err := netlink.LinkByName(name)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return
		}
		l.must(err)
		link = found
	})
	return link
}

// linksOf describes all links of a namespace.
func (l *lab) linksOf(n *netlab.Namespace) (list []string) {
	n.Do(func() {
		links, err := link.Uninterrupted(netlink.LinkList)
		l.must(err)
		for _, link := range links {
			a := link.Attrs()
			list = append(list, fmt.Sprint(a.Index, a.Name, " ", link.Type(), a.HardwareAddr, a.MTU, a.TxQLen, a.Flags, a.OperState, a.MasterIndex, a.Alias))
		}
	})
	return list
}

// addresses returns a link's addresses that are not link-local, with prefix lengths.
func (l *lab) addresses(n *netlab.Namespace, name string) []string {
	list := []string{}
	n.Do(func() {
		its, err := netlink.LinkByName(name)
		l.must(err)
		addresses, err := link.Uninterrupted(func() ([]netlink.Addr, error) { return netlink.AddrList(its, netlink.FAMILY_ALL) })
		l.must(err)
		for _, a := range addresses {
			if netlink.Scope(a.Scope) == netlink.SCOPE_UNIVERSE {
				list = append(list, a.IPNet.String())
			}
		}
	})
	return list
}

// has makes sure that the container's interface has these values, and hasAddresses that it has these addresses alone.
func (c *container) has(namesAndValues ...any) {
	c.lab.has(&c.Namespace, c.runtime.IfName, namesAndValues...)
}

func (c *container) hasAddresses(want ...string) {
	c.lab.same(c.lab.addresses(&c.Namespace, c.runtime.IfName), append([]string{}, want...))
}

// pings makes sure that addresses answer the container's pings.
func (c *container) pings(to ...string) { c.lab.pings(&c.Namespace, to...) }

// sysctl returns the value of a sysctl of the container.
func (c *container) sysctl(path string) string { return c.lab.sysctl(&c.Namespace, path) }

// sysctl returns the value of a sysctl, named by its path below /proc/sys/net.
func (l *lab) sysctl(n *netlab.Namespace, path string) (value string) {
	n.Do(func() {
		text, err := os.ReadFile("/proc/sys/net/" + path)
		if err != nil {
			l.Fatal(err)
		}
		value = strings.TrimSpace(string(text))
	})
	return value
}

// hostEnd returns the name of the node's end of a container's veth pair.
func (c *container) hostEnd() (name string) {
	own := c.lab.attributes(&c.Namespace, c.runtime.IfName)
	if own == nil || own.ParentIndex == 0 {
		c.lab.Fatalf("%s has no other end", c.runtime.IfName)
	}
	c.lab.host.Do(func() {
		link, err := netlink.LinkByIndex(own.ParentIndex)
		c.lab.must(err)
		name = link.Attrs().Name
	})
	return name
}

// path is a connection that is tried: over tcp or udp, from a namespace to an address with a port.
type path struct {
	protocol string
	from     *netlab.Namespace
	to       string
}

func tcp(from *netlab.Namespace, to string, port int) path {
	return path{"tcp", from, netip.AddrPortFrom(addr(to), uint16(port)).String()}
}

func udp(from *netlab.Namespace, to string, port int) path {
	return path{"udp", from, netip.AddrPortFrom(addr(to), uint16(port)).String()}
}

func (p path) String() string {
	return fmt.Sprintf("%s to %s over %s", p.from.Name(), p.to, p.protocol)
}

// ask tries a connection: the name of who answers, a blank, "saw", a blank, and the address that the answer went to.
func (p path) ask(wait time.Duration) (string, error) {
	if p.protocol == "udp" {
		return p.from.DialUDP(p.to, wait)
	}
	return p.from.DialTCP(p.to, wait)
}

// serve has a namespace answer over TCP and UDP on a port of all its addresses.
func (l *lab) serve(n *netlab.Namespace, port int) {
	address := fmt.Sprintf("[::]:%d", port)
	n.ServeTCP(l, address)
	n.ServeUDP(l, address)
}

// answers makes sure that who is asked along a path answers as wanted: "web", or "web saw 192.0.2.1".
func (l *lab) answers(p path, want string) {
	reply, err := p.ask(l.patience())
	if err != nil || reply != want && !strings.HasPrefix(reply, want+" saw ") {
		l.Errorf("%s: want %q, got %q %v", p, want, reply, err)
	}
}

// silent makes sure that nobody answers along any of the paths, which are tried at the same time. What DEL has taken out of the packet filter has
// expired by then: that is with the next tick of the kernel's clock.
func (l *lab) silent(paths ...path) {
	l.eventually(func() string {
		rules, _ := l.host.Output(l.host.Command("nft", "list", "ruleset")) // without nftables nothing expires
		if strings.Contains(rules, "expires") {
			return "something in the packet filter has not expired yet"
		}
		return ""
	})
	var wait sync.WaitGroup
	for _, p := range paths {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if reply, err := p.ask(silence); err == nil {
				l.Errorf("%s: answers %q", p, reply)
			}
		}()
	}
	wait.Wait()
}

// state is what a node and its containers have at some time.
type state struct {
	lab   *lab
	nodes []snapshotter
	shots []*netlab.Snapshot
}

type snapshotter interface {
	Snapshot(t testing.TB) *netlab.Snapshot
}

// furniture matches the lines of a snapshot that tell of what all attachments share and leave on purpose: directories, locks,
// what is remembered to be quicker, and files of the runtime.
var furniture = regexp.MustCompile(`^[-+] (file|mount) (` +
	`/var/lib/cni(/networks(/[^/ ]+)?|/contivk8s)? d|/var/lib/cni/networks/[^ ]*/(lock|last_reserved_ip\.\d+) |/var/lib/cni/networks/\.|` +
	`/var/lib/cni/results|/run/netns/|/run/xtables\.lock|/run/cni(/tuning|/dhcp\.leases)? d|/run/cni/dhcp\.(sock|leases/lock) |/run/cnibox)`)

// now records what there is on the node, and in the containers given.
func (l *lab) now(containers ...*container) *state {
	s := &state{lab: l, nodes: []snapshotter{l.host}}
	for _, c := range containers {
		s.nodes = append(s.nodes, c)
	}
	for _, n := range s.nodes {
		s.shots = append(s.shots, n.Snapshot(l))
	}
	return s
}

// changed returns what is different since, a line for each thing.
func (s *state) changed() string {
	var out strings.Builder
	for i, n := range s.nodes {
		for line := range strings.Lines(s.shots[i].Diff(n.Snapshot(s.lab))) {
			if !furniture.MatchString(line) {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// unchanged makes sure that all is as it was, now or when the kernel has done what a call left to it. What others' plugins leave never goes: a row of
// theirs that has failed before is not worth the wait.
func (s *state) unchanged() {
	if !s.lab.suite.ours && s.lab.Failed() {
		if diff := s.changed(); diff != "" {
			s.lab.Error("there is a difference:\n" + diff)
		}
		return
	}
	s.lab.eventually(func() string {
		if diff := s.changed(); diff != "" {
			return "there is a difference:\n" + diff
		}
		return ""
	})
}

// unchangedBy makes sure that calls succeed, and change nothing: l.now(web).unchangedBy(web.check()), which Go evaluates from left to right.
func (s *state) unchangedBy(errs ...error) {
	s.lab.must(errs...)
	s.unchanged()
}

// refused makes sure that a call failed with an error that names all parts, and has changed nothing.
func (s *state) refused(err error, parts ...string) {
	s.lab.refused(err, parts...)
	s.unchanged()
}

// refuses makes sure that ADD fails with an error that names all parts, and changes nothing, on the node and in the container.
func (l *lab) refuses(c *container, n network, parts ...string) {
	l.now(c).refused(c.add(n), parts...)
}

// undoes is refuses for what ADD finds out on its way: sysctls of the container are not set back.
func (l *lab) undoes(c *container, n network, parts ...string) {
	links := l.linksOf(&c.Namespace)
	l.now().refused(c.add(n), parts...)
	l.same(l.linksOf(&c.Namespace), links)
}

// warm attaches and detaches a container: what all containers of a network share is there from then on.
func (l *lab) warm(n network, options ...option) {
	c := l.attach(n, "warm", options...)
	l.must(c.del())
	c.Delete(l)
}

// warmed is warm, and returns what there is then.
func (l *lab) warmed(n network, options ...option) *state {
	l.warm(n, options...)
	return l.now()
}
