package probe

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
)

// whyFiltered says which rule of the host drops a test's packets, and tries the test again for that. doctor may know what
// nf_tables does not tell, such as about rules of iptables-legacy.
func (w *subject) whyFiltered(t *Test) (reason, remedy string) {
	if t == nil || t.from == nil {
		return w.whyDoctor()
	}
	key := fmt.Sprint(t.from.Name, t.Family, t.protocol, t.target.Port())
	if known, ok := w.filtered[key]; ok {
		return known[0], known[1]
	}
	if v, found := w.trace(t); found {
		reason, remedy = v.reason(), v.remedy()
	} else {
		reason, remedy = w.whyDoctor()
	}
	w.filtered[key] = [2]string{reason, remedy}
	return reason, remedy
}

// trace tries a test again, and returns what drops its packets.
func (w *subject) trace(t *Test) (v verdict, found bool) {
	sources := []netip.Addr{t.from.address(familyOf(t.target.Addr()))}
	if t.reached != nil && t.reached != t.from {
		sources = append(sources, t.reached.address(familyOf(t.target.Addr())))
	}
	tracing, err := startTracer(sources)
	if err != nil {
		return v, false
	}
	defer tracing.close()
	const patience = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	again, tried := *t, make(chan error, 1)
	go func() { tried <- again.try(ctx) }()
	v, found = tracing.drop(time.Now().Add(patience))
	cancel()
	<-tried
	return v, found
}

func (v verdict) reason() string {
	in := fmt.Sprintf("chain %s of table %s %s", v.chain, v.family, v.table)
	if v.rule == 0 {
		return in + " drops it: none of its rules accepts it, and its policy is drop"
	}
	return strings.TrimSpace(fmt.Sprintf("rule %d in %s drops it: %s", v.rule, in, v.text()))
}

func (v verdict) remedy() string {
	if v.rule == 0 {
		return `add {"type": "firewall"} to the network's plugins, whose rules accept its packets, or a rule of your own`
	}
	return fmt.Sprintf("if nobody needs it: nft delete rule %s %s %s handle %d", v.family, v.table, v.chain, v.rule)
}

var counters = regexp.MustCompile(`counter packets \d+ bytes \d+ ?`)

// text is the rule as nft prints it, "" if it does not.
func (v verdict) text() string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	chain, err := exec.CommandContext(ctx, "nft", "-a", "list", "chain", v.family, v.table, v.chain).Output()
	if err != nil {
		return ""
	}
	if m := regexp.MustCompile(fmt.Sprintf(`(?m)^\s*(.*) # handle %d$`, v.rule)).FindSubmatch(chain); m != nil {
		return counters.ReplaceAllString(string(m[1]), "")
	}
	return ""
}

// whyDoctor is what doctor finds about the network in the packet filter.
func (w *subject) whyDoctor() (reason, remedy string) {
	o := doctor.Options{
		Options: w.node.Options,
		Codes:   []string{"forward-drops", "docker-drops", "ufw-drops", "firewalld-no-zone"},
	}
	for _, f := range doctor.Examine(context.Background(), o).Findings {
		if f.Network == w.list.Name {
			return f.Summary, f.Remedy
		}
	}
	return "", ""
}
