package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/operator/agent/resolver"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

var (
	namesUnanswered = codes.Declare(finding.Code{Name: "names-unanswered", Severity: finding.Warning, Brings: finding.Codes{networkNotReady},
		Meaning: "Containers of this network don't find each other by name: they ask the node's servers, which don't know them, or have no DNS with `\"nodeServers\": false`. Those with names on their lists reach nothing by name.",
		Remedy:  "`systemctl enable --now cnibox-agent`"})
	namesAnsweredByOther = codes.Declare(finding.Code{Name: "names-answered-by-other", Severity: finding.Warning,
		Meaning: "Containers of this network don't find each other by name, or reach nothing by the names on their lists: another DNS server of this host listens at their gateway.",
		Remedy:  "have that server listen elsewhere: `bind-dynamic` and `except-interface` of dnsmasq"})
)

// checkNames asks where containers ask for names. The agent's resolver refuses what the host asks, and another server does not.
func checkNames(ctx context.Context, s *subject) (list []Finding, err error) {
	called, err := names.List(names.Called)
	listed, err2 := names.List(names.Listed)
	listed = slices.DeleteFunc(listed, func(r *names.Record) bool { return !resolver.ListsOf(r).HasNames() })
	seen := map[netip.AddrPort]bool{}
	for _, r := range append(called, listed...) {
		for _, g := range r.Gateways {
			at := netip.AddrPortFrom(g, r.Port())
			if seen[at] || s.Network(r.Network) == nil {
				continue
			}
			seen[at] = true
			asked := new(dns.Msg).SetQuestion("gateway.invalid.", dns.TypeA).SetEdns0(dns.DefaultMsgSize, false)
			client := &dns.Client{Timeout: time.Second}
			answer, _, failed := client.ExchangeContext(ctx, asked, at.String())
			where := fmt.Sprintf("port %d of %s, where containers of network %s ask for names", at.Port(), g, r.Network)
			switch {
			case failed != nil && !s.hasAddress(g): // gateway-gone says it
			case errors.Is(failed, unix.ECONNREFUSED):
				list = append(list, found(namesUnanswered, r.Network, s.startAgent(), "nobody answers at %s", where))
			case failed != nil:
				list = append(list, found(namesUnanswered, r.Network, finding.Say("let the host be asked at port %d of %s: %v", at.Port(), g, failed), "nobody answers in time at %s", where))
			case !resolver.IsRefusal(answer):
				list = append(list, found(namesAnsweredByOther, r.Network,
					finding.Say("`ss -lnup 'sport = %d'` says who it is: have it listen elsewhere, and the agent takes its place", at.Port()), "another DNS server than the agent answers at %s", where))
			}
		}
	}
	return list, errors.Join(err, err2)
}

// startAgent returns the command that has the agent answer for names.
func (s *subject) startAgent() finding.Remedy {
	if !names.HasResolver() && installedUnit("cnibox-agent.service") != "" {
		return finding.Run("systemctl", "enable", "--now", "cnibox-agent")
	}
	if names.HasResolver() {
		return finding.Say("`cnictl agent status` says what keeps it from answering there")
	}
	return finding.Say("run `cnictl agent --dns`, and have it started at each boot: see docs/operate/agent.md")
}

func (s *subject) hasAddress(a netip.Addr) bool {
	for _, l := range s.Links() {
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return false
}
