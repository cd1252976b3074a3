package bench

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// everyone are all implementations; working those that do something, contenders of them those that differ most.
var (
	everyone   = []string{report.Reference, report.Debian, report.Cnibox, report.Chain, report.NoOps, report.NoOp}
	working    = []string{report.Reference, report.Debian, report.Cnibox, report.Chain}
	contenders = []string{report.Reference, report.Cnibox, report.Chain}
)

// node measures the first attachment of a node.
func (r *runner) node(b *testing.B, scenario string) {
	r.measure(b, scenario, r.profile.rounds, r.newSubjects(b, everyone, usual(hostLocal), "0"))
}

// attachments measures one more attachment on nodes that fill up. cnibox has one node, with or without a chain: what is
// on a node does not tell how it came there, and the fewer namespaces the machine has beside a node's, the more is it like
// one.
func (r *runner) attachments(b *testing.B, scenario string) {
	var subjects, nodes []*subject
	var cnibox *subject
	for _, i := range choose(contenders...) {
		if i.name == report.Chain && cnibox != nil {
			s := *cnibox
			s.implementation, s.list = i, usual(hostLocal).list(b, true)
			s.port++ // the other one's was given back a moment ago
			i.install(b, s.Host, r.programs)
			subjects = append(subjects, &s)
			continue
		}
		s := r.newSubject(b, i, usual(hostLocal), "")
		subjects, nodes = append(subjects, s), append(nodes, s)
		if i.name == report.Cnibox {
			cnibox = s
		}
	}
	there := 0
	for _, n := range r.profile.attachments {
		for _, s := range nodes {
			r.attach(b, s, there, n)
		}
		for _, s := range subjects {
			s.varied = strconv.Itoa(n)
		}
		there = n
		r.measure(b, scenario, r.profile.fewRounds, subjects)
	}
}

// ports measures pods with more or fewer ports. The no-op tells how fast the machine is meanwhile.
func (r *runner) ports(b *testing.B, scenario string) {
	var subjects []*subject
	for _, ports := range []int{0, 1, 10} {
		for _, s := range r.newSubjects(b, append([]string{report.NoOp}, working...), usual(hostLocal), strconv.Itoa(ports)) {
			s.ports = ports
			subjects = append(subjects, s)
		}
	}
	r.measure(b, scenario, r.profile.fewRounds, subjects)
}

// leases measures a bridge whose network has handed out addresses already, at last all of a small range but one. The no-op
// tells how fast the machine is meanwhile.
func (r *runner) leases(b *testing.B, scenario string) {
	var subjects []*subject
	add := func(varied, subnet string, n int) {
		names := []string{report.Reference, report.Debian, report.Cnibox, report.NoOp}
		for _, s := range r.newSubjects(b, names, network{bridge(ranged(subnet))}, varied) {
			var err error
			s.Do(func() { err = addLeases(n) })
			if err != nil {
				b.Fatal(err)
			}
			subjects = append(subjects, s)
		}
	}
	for _, n := range r.profile.leases {
		add(strconv.Itoa(n), subnet, n)
	}
	add("252 of 253", strings.Replace(subnet, "/16", "/24", 1), 252)
	r.measure(b, scenario, r.profile.fewRounds, subjects)
}

// addLeases writes n leases the way the reference plugin does.
func addLeases(n int) error {
	dir := filepath.Join(netlab.CacheDir, "networks", networkName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	address := netip.MustParsePrefix(subnet).Addr().Next() // the gateway
	for i := range n {
		address = address.Next()
		holder := strings.Repeat(strconv.Itoa(100000+i), 10) + "\r\neth0"
		if err := os.WriteFile(filepath.Join(dir, address.String()), []byte(holder), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "last_reserved_ip.0"), []byte(address.String()), 0o600)
}

// dualStack measures an IPv6 address beside the IPv4 one.
func (r *runner) dualStack(b *testing.B, scenario string) {
	subjects := r.newSubjects(b, working, usual(hostLocal), "IPv4")
	subjects = append(subjects, r.newSubjects(b, working, usual(dualStack), "IPv4 and IPv6")...)
	r.measure(b, scenario, r.profile.rounds, subjects)
}

// plugins measures each plugin by itself.
func (r *runner) plugins(b *testing.B, scenario string) {
	var subjects []*subject
	for _, c := range []struct {
		varied  string
		network network
		plugin  string // the one of several that counts
	}{
		{"loopback", network{{"type": "loopback"}}, ""},
		{"bridge with host-local", network{bridge(hostLocal)}, ""},
		{"bridge with static", network{bridge(static)}, ""},
		{"host-local", network{{"type": "host-local", "ipam": hostLocal}}, ""},
		{"static", network{{"type": "static", "ipam": static}}, ""},
		{"tuning, one sysctl", network{bridge(hostLocal), tuning}, "tuning"},
		{"portmap, one port", network{bridge(hostLocal), portmap}, "portmap"},
	} {
		for _, s := range r.newSubjects(b, []string{report.Reference, report.Debian, report.Cnibox}, c.network, c.varied) {
			s.plugin = c.plugin
			subjects = append(subjects, s)
		}
	}
	r.measure(b, scenario, r.profile.fewRounds, subjects)
}
