package explain

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

// Known is an error that people meet, whoever reports it: our plugins, the reference's, libcni, a runtime.
type Known struct {
	ID      string
	Means   string
	Do      string
	Pattern string              // a regular expression; its groups name what the message is about: address, port, link, path …
	Wraps   bool                // it only says that something failed; what it wraps counts, if that is known
	Look    string              // what to look at on the node, of looks; "": nothing
	Doctor  []string            // findings of doctor that are about the same
	Example string              // a message, as it was seen
	Texts   map[string][]string // how the message stands in the source of those who print it, by repository

	pattern *regexp.Regexp
	isPage  bool // the manual's page has it, and nobody has said more
}

// look says what on the node makes the error, given what the groups of the pattern matched.
type look func(n *node.Node, about map[string]string) []string

// Explanation is what is known about an error.
type Explanation struct {
	Message   string    `json:"message"` // as it was found in what was given
	Code      uint      `json:"code,omitempty"`
	CodeMeans string    `json:"codeMeans,omitempty"`
	Details   string    `json:"details,omitempty"` // what the plugin says can be done
	Plugin    string    `json:"plugin,omitempty"`
	Network   string    `json:"network,omitempty"`
	Verb      string    `json:"verb,omitempty"`
	Findings  []Finding `json:"findings"`
	Like      []string  `json:"like,omitempty"` // codes that may have been meant, where nothing is known
}

// Finding is a known error that is in the message, which is its summary, or a code.
type Finding struct {
	finding.Finding
	Here []string `json:"here"` // what is so on this node

	Doctor []doctor.Finding `json:"doctor"` // what doctor finds of that kind

	known *Known
	about map[string]string
}

// MarshalJSON calls what all findings have as explain has always done, too.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	return json.Marshal(struct {
		plain
		ID    string `json:"id"`
		Means string `json:"means"`
		Do    string `json:"do"`
		About string `json:"about"`
	}{plain(f), f.Code, f.Meaning, f.Remedy, f.Summary})
}

// failed is how libcni says which plugin failed.
var failed = regexp.MustCompile(`plugin type="([^"]+)"(?: name="([^"]+)")? failed \((\w+)\)`)

// Explain finds what is known about a text: an error document, a runtime's log line, a message, a part of one, a code of CNI, or one of doctor,
// repair, lint or trace.
func Explain(text string) *Explanation {
	e := parse(text)
	if m := failed.FindStringSubmatch(e.Message); m != nil {
		e.Plugin, e.Network, e.Verb = m[1], m[2], m[3]
	}
	e.Findings = append(e.Findings, codesIn(e.Message)...)
	whole := e.Message + "\n" + e.Details
	for _, k := range slices.Concat(messages(), onPage()) {
		if m := k.pattern.FindStringSubmatch(whole); m != nil {
			f := newFinding(&k, finding.Error, strings.TrimSpace(m[0]))
			f.about = groups(k.pattern, m)
			e.Findings = append(e.Findings, f)
		}
	}
	if !slices.ContainsFunc(e.Findings, func(f Finding) bool { return !f.known.Wraps }) {
		e.Findings = append(e.Findings, ownIn(whole)...)
	}
	e.leaveOut(func(k *Known) bool { return k.Wraps })
	e.leaveOut(func(k *Known) bool { return k.isPage })
	if word := strings.TrimSpace(e.Message); len(e.Findings) == 0 && !strings.Contains(word, " ") {
		e.Like = lookup.Near(slices.Concat(doctor.Codes().Names(), lint.Codes().Names(), trace.Codes().Names()), word)
	}
	return e
}

// leaveOut leaves out the findings that say little, if there are others.
func (e *Explanation) leaveOut(saysLittle func(*Known) bool) {
	others := slices.DeleteFunc(slices.Clone(e.Findings), func(f Finding) bool { return saysLittle(f.known) })
	if len(others) > 0 {
		e.Findings = others
	}
}

func groups(pattern *regexp.Regexp, match []string) map[string]string {
	about := map[string]string{}
	for i, name := range pattern.SubexpNames() {
		if name != "" && match[i] != "" {
			about[name] = match[i]
		}
	}
	return about
}

// Looks reports whether something on the node has to do with what was found.
func (e *Explanation) Looks() bool {
	return slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.known.Look != "" || f.known.Doctor != nil })
}

// LookAt says what on a node makes the error.
func (e *Explanation) LookAt(ctx context.Context, n *node.Node, o doctor.Options) {
	for i := range e.Findings {
		f := &e.Findings[i]
		if f.known.Look != "" {
			f.about["failedNetwork"] = e.Network
			f.Here = append(f.Here, looks[f.known.Look](n, f.about)...)
		}
		if f.known.Doctor != nil {
			o.Node, o.Codes = n, f.known.Doctor
			found := doctor.Examine(ctx, o).Findings
			f.Doctor = append(f.Doctor, slices.DeleteFunc(found, func(d doctor.Finding) bool { return !d.IsShown() })...)
		}
	}
}
