package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/program"
)

// readLegacy reads iptables-legacy's tables that are there: to ask for another one would make it.
func (r *ruleset) readLegacy() (err error) {
	for name, list := range map[string]string{"iptables": "/proc/net/ip_tables_names", "ip6tables": "/proc/net/ip6_tables_names"} {
		text, _ := os.ReadFile(list) // there is none without iptables-legacy
		if tables := strings.Fields(string(text)); slices.Contains(tables, "filter") || slices.Contains(tables, "nat") {
			err = errors.Join(err, r.readLegacyOf(name, tables))
		}
	}
	return err
}

func (r *ruleset) readLegacyOf(name string, tables []string) error {
	path, err := program.Find(name + "-legacy")
	if err != nil {
		return fmt.Errorf("the kernel has rules of iptables-legacy, and there is no program %s-legacy to list them", name)
	}
	p, err := iptables.New(iptables.Path(path), iptables.Timeout(5))
	if err != nil {
		return err
	}
	if slices.Contains(tables, "nat") {
		is, err := p.ChainExists("nat", "KUBE-SERVICES")
		if err != nil {
			return err
		}
		r.kubeProxy = r.kubeProxy || is
	}
	if !slices.Contains(tables, "filter") {
		return nil
	}
	f := forwardChain{program: "%s-legacy", table: nftables.Table{Name: "filter"}, name: "FORWARD", v4: name == "iptables", v6: name != "iptables"}
	if f.chains, err = p.ListChains("filter"); err != nil {
		return err
	}
	drops := false
	for _, chain := range f.chains {
		rules, err := p.List("filter", chain)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			drops = drops || rule == "-P FORWARD DROP"
			if _, target, jumps := strings.Cut(rule, "-j "); jumps && chain != "INPUT" && chain != "OUTPUT" {
				f.add(acceptanceIn(rule), target == "ACCEPT", target)
			}
		}
	}
	if drops {
		r.drops = append(r.drops, f)
	}
	return nil
}

// quoted matches a rule's comment, which says nothing.
var quoted = regexp.MustCompile(`-m comment --comment ("[^"]*"|\S+) `)

// acceptanceIn reads a rule as iptables lists it: -A FORWARD -s 10.88.0.0/24 -i demo0 -m conntrack --ctstate NEW -j ACCEPT.
func acceptanceIn(rule string) (a acceptance) {
	words := strings.Fields(quoted.ReplaceAllString(rule, ""))
	a.chain = words[1]
	for i := 2; i+1 < len(words); i++ {
		negated, value := words[i-1] == "!", words[i+1]
		switch word := words[i]; {
		case word == "!":
			continue
		case word == "-j":
		case negated:
			a.other = true
		case word == "-i" || word == "-o":
			a.links = append(a.links, strings.Replace(value, "+", "*", 1))
		case word == "-s" || word == "-d":
			if p, err := netip.ParsePrefix(value); err == nil {
				a.spans = append(a.spans, spanOf(p))
			}
		default:
			a.other = true
		}
		i++
	}
	return a
}
