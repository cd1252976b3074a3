package doctor

import (
	"context"
	"errors"
	"net"
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
		Meaning: "Containers of this network don't find each other by name: they ask the node's servers, which don't know them.",
		Remedy:  "`systemctl enable --now cnibox-agent`"})
	namesAnsweredByOther = codes.Declare(finding.Code{Name: "names-answered-by-other", Severity: finding.Warning,
		Meaning: "Containers of this network don't find each other by name: another DNS server of this host listens at their gateway.",
		Remedy:  "have that server listen elsewhere: `bind-dynamic` and `except-interface` of dnsmasq"})
)

// checkNames asks the gateways of containers that have names. The agent's resolver refuses what the host asks, and another server does not.
func checkNames(ctx context.Context, s *subject) (list []Finding, err error) {
	records, err := names.List()
	seen := map[netip.Addr]bool{}
	for _, r := range records {
		for _, g := range r.Gateways {
			if seen[g] || s.Network(r.Network) == nil {
				continue
			}
			seen[g] = true
			asked := new(dns.Msg).SetQuestion("gateway.invalid.", dns.TypeA).SetEdns0(dns.DefaultMsgSize, false)
			client := &dns.Client{Timeout: time.Second}
			answer, _, failed := client.ExchangeContext(ctx, asked, net.JoinHostPort(g.String(), "53"))
			switch {
			case failed != nil && !s.hasAddress(g): // gateway-gone says it
			case errors.Is(failed, unix.ECONNREFUSED):
				list = append(list, found(namesUnanswered, r.Network, s.startAgent(), "nobody answers at port 53 of %s, where containers of network %s ask for names", g, r.Network))
			case failed != nil:
				list = append(list, found(namesUnanswered, r.Network, finding.Say("let the host be asked at port 53 of %s: %v", g, failed),
					"port 53 of %s does not answer, where containers of network %s ask for names", g, r.Network))
			case !resolver.IsRefusal(answer):
				list = append(list, found(namesAnsweredByOther, r.Network, finding.Say("`ss -lnup 'sport = 53'` says who it is: have it listen elsewhere, and the agent takes its place"),
					"another DNS server than the agent answers at %s, where containers of network %s ask for names", g, r.Network))
			}
		}
	}
	return list, err
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
