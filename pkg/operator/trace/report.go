package trace

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// Report is what became of a packet.
type Report struct {
	Packet  string  `json:"packet"`
	Outcome Outcome `json:"outcome"`
	Summary string  `json:"summary"` // in a sentence
	Steps   []Step  `json:"steps"`
	Cause   *Cause  `json:"cause,omitempty"` // the first one, if it was not answered

	IsLed bool `json:"-"` // a rule has led a packet that stays on the node to somebody on it: it says nothing of those that leave
}

// Outcome is what came of it.
type Outcome string

// The outcomes.
const (
	Answered Outcome = "answered"
	Refused  Outcome = "refused" // by who got it
	Arrived  Outcome = "arrived" // and was not answered, which is nobody's fault with UDP
	Left     Outcome = "left"    // the node, and nothing came back
	Dropped  Outcome = "dropped" // on the node
)

// Step is one thing that was seen of the packet.
type Step struct {
	Way  string `json:"way"`            // request or answer
	At   string `json:"at"`             // the host, or the name of a container
	Hook string `json:"hook,omitempty"` // of the packet filter
	What string `json:"what"`

	Table   string  `json:"table,omitempty"` // with its family
	Chain   string  `json:"chain,omitempty"`
	Handle  uint64  `json:"handle,omitempty"` // of the rule
	Rule    string  `json:"rule,omitempty"`   // as nft prints it
	Verdict Verdict `json:"verdict,omitempty"`
	Owner   Owner   `json:"owner,omitempty"`
}

// Cause is why a packet was lost, and what to do about it.
type Cause struct {
	finding.Finding
	Whose Owner `json:"whose"`
}

// IsByRule reports whether a rule or a policy of the packet filter drops the packet.
func (c *Cause) IsByRule() bool {
	return c.Code == ruleDrops.Name || c.Code == policyDrops.Name || c.Code == legacyDrops.Name || c.Code == waits.Name
}

// IsVague reports whether the cause says only where the packet was seen last.
func (c *Cause) IsVague() bool {
	return c.Code == hookDrops.Name || c.Code == leftNode.Name || c.Code == silent.Name || c.Code == notSent.Name || c.Code == told.Name
}

func (r *run) report() *Report {
	request, answer := r.request(), r.answer()
	report := &Report{Packet: r.flow.String()}
	if !r.Brief {
		report.Steps = append(r.describe(request, "request"), r.describe(answer, "answer")...)
	}
	report.Outcome, report.Cause = r.judge(request, answer)
	report.IsLed = report.Cause == nil && r.isLed(request)
	report.Summary = r.summary(report)
	return report
}

func (r *run) summary(p *Report) string {
	switch {
	case p.Cause != nil:
		return p.Cause.Summary
	case p.Outcome == Arrived:
		return "it has arrived, and was not answered, as is usual with UDP"
	}
	return fmt.Sprintf("%s answered", r.flow.To)
}

// describe says in a line each what was seen.
func (r *run) describe(list []stage, direction string) (steps []Step) {
	var before *stage
	for _, s := range list {
		if before != nil && before.at == s.at {
			if what := changed(before.Packet, s.Packet); what != "" {
				steps = append(steps, Step{Way: direction, At: s.at.name, Hook: before.hook, What: what})
			}
		}
		step := Step{Way: direction, At: s.at.name, Hook: s.hook}
		if s.own {
			step.What = r.point(s)
		} else if s.Rule != 0 || s.Verdict != Continue { // the end of a chain that others enter
			r.foreign(s, &step)
		}
		if step.What != "" {
			steps = append(steps, step)
		}
		before = &s
	}
	return steps
}

// point says what it means that a packet has come to one of our chains, "" if that goes without saying.
func (r *run) point(s stage) string {
	hook, which := s.point()
	switch {
	case s.Target == "untracked":
		return "the tracking of connections lets it alone (untracked): it is not masqueraded, and no published port is applied"
	case s.Target == "invalid":
		return "the tracking of connections can make nothing of it (invalid)"
	case s.Verdict == Drop:
		return fmt.Sprintf("would leave by %s, and is kept here", s.at.linkName(s.Out))
	case !s.isCheckpoint():
		return ""
	}
	switch hook + " " + which {
	case "netdev ingress begin":
		return "comes in by " + s.at.linkName(s.In)
	case "bridge forward begin":
		return fmt.Sprintf("goes over the bridge from %s to %s", s.at.linkName(s.In), s.at.linkName(s.Out))
	case "input begin":
		return "is for " + s.at.name + " itself"
	case "forward begin":
		return fmt.Sprintf("is routed from %s to %s", s.at.linkName(s.In), s.at.linkName(s.Out))
	case "output begin":
		return "is sent, " + s.at.route(s.Packet.To, netip.Addr{}, 0, s.Mark).String()
	case "postrouting end":
		return "leaves by " + s.at.linkName(s.Out)
	}
	return ""
}

// foreign describes a step of others.
func (r *run) foreign(s stage, step *Step) {
	step.Table, step.Chain, step.Handle, step.Verdict, step.Owner = s.Family+" "+s.Table, s.Chain, s.Rule, s.Verdict, ownerOf(s.Table, s.Chain)
	if !s.at.isHost() {
		step.Owner = Guest
	}
	if s.Rule == 0 {
		step.What = fmt.Sprintf("%s: policy %s", s.Event, s.Verdict)
		return
	}
	step.Rule = r.ruleText(s.at, s.Event)
	verdict := string(s.Verdict)
	if s.Target != "" {
		verdict += " " + s.Target
	}
	step.What = fmt.Sprintf("%s: %s", s.Event, cmp.Or(step.Rule, verdict))
}

// changed says which address of a packet is another one now.
func changed(before, now Header) string {
	text := func(a netip.Addr, port uint16) string {
		if port == 0 || now.isPing() {
			return a.String()
		}
		return netip.AddrPortFrom(a, port).String()
	}
	switch {
	case !before.From.IsValid() || !now.From.IsValid() || before.isError() != now.isError():
		return ""
	case before.To != now.To || before.ToPort != now.ToPort:
		return "its destination is " + text(now.To, now.ToPort) + " from here on"
	case before.From != now.From || before.FromPort != now.FromPort:
		return "its source is " + text(now.From, now.FromPort) + " from here on"
	}
	return ""
}
