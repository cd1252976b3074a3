package firewall

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// web is a published port.
var web = port{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}

// iptables is the program of the backend's flavour.
func (b backend) iptables() string {
	if b.flavour == "" {
		return "iptables"
	}
	return "iptables-" + b.flavour
}

// TestAdministratorsNAT shows what an administrator's own rules of source NAT do
// to our masquerading.
func TestAdministratorsNAT(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			host := newHost(t, b)
			outside := host.NewOutside(t)
			outside.AddRoute(t, podsBridge.subnet4)
			v4 := families[0]
			host.MustRun(t, "ip", "addr", "add", v4.second.String()+"/24", "dev", netlab.UplinkName)
			pod := attach(t, host, network(b, podsBridge), "web")
			protocols[0].serve(t, &outside.Namespace, at(v4.outside, 80))
			sees := func(what, want string) {
				t.Helper()
				t.Log(what)
				protocols[0].ask(t, question{&pod.Namespace, at(v4.outside, 80), "outside saw " + want})
			}
			sees("no rule of the administrator's", v4.host.String())

			exempt := []string{"POSTROUTING", "-s", pod.v4.String(), "-j", "ACCEPT"}
			host.MustRun(t, b.iptables(), append([]string{"-t", "nat", "-I"}, exempt...)...)
			want := v4.host.String()
			if b.config == "iptables" {
				want = pod.v4.String()
			}
			sees("an ACCEPT before ours", want)
			host.MustRun(t, b.iptables(), append([]string{"-t", "nat", "-D"}, exempt...)...)

			host.MustRun(t, b.iptables(), "-t", "nat", "-I", "POSTROUTING", "-s", pod.v4.String(), "-j", "SNAT", "--to-source", v4.second.String())
			sees("a source NAT before ours", v4.second.String())
		})
	}
}

// TestFirewalldReload: our table is none of firewalld's business.
func TestFirewalldReload(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"nftables", "iptables"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			host := newHost(t, backends[0])
			daemon := firewalldtest.Start(t, host, with)
			conflist := network(backends[0], podsBridge)
			pod := attach(t, host, conflist, "web", web)
			before := host.MustRun(t, "nft", "list", "table", "inet", "cnibox")
			daemon.Reload(t)
			if after := host.MustRun(t, "nft", "list", "table", "inet", "cnibox"); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			if err := host.CheckList(conflist, pod.RuntimeConf(pod.caps)); err != nil {
				t.Errorf("CHECK: %v", err)
			}
		})
	}
}

// TestFlushed: CHECK says what is gone when somebody has flushed the rules.
func TestFlushed(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			host := newHost(t, b)
			conflist := network(b, podsBridge)
			pod := attach(t, host, conflist, "web", web)
			flush, want := []string{"nft", "flush", "ruleset"}, "table inet cnibox is missing"
			if b.config == "iptables" {
				flush, want = []string{b.iptables(), "-t", "nat", "-F"}, "lacks the rule"
			}
			host.MustRun(t, flush[0], flush[1:]...)
			err := host.CheckList(conflist, pod.RuntimeConf(pod.caps))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("CHECK: %v; want %q", err, want)
			}
			t.Log(err)
			if err := pod.del(host, conflist); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
}
