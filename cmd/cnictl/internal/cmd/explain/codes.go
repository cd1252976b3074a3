package explain

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

// printedCode is how doctor, lint and trace print the code of a finding.
var printedCode = regexp.MustCompile(`\b(?:error|warning|info|cause) +([a-z0-9-]+): `)

// codesIn returns what is known of the codes of doctor, repair, lint and trace in a text, which is one or has some as they print them.
func codesIn(text string) (list []Finding) {
	list = ofCode(strings.TrimSpace(text))
	for _, m := range printedCode.FindAllStringSubmatch(text, -1) {
		isKnown := func(f Finding) bool { return f.Code == m[1] }
		if !slices.ContainsFunc(list, isKnown) {
			list = append(list, ofCode(m[1])...)
		}
	}
	return list
}

func ofCode(name string) (list []Finding) {
	if c := doctor.Codes().Find(name); c != nil { // which has repair's, too
		list = append(list, newFinding(&Known{ID: name, Means: c.Meaning, Do: c.Remedy, Doctor: []string{name}}, c.Severity, name))
	}
	if c := lint.Codes().Find(name); c != nil {
		list = append(list, newFinding(&Known{ID: name, Means: c.Meaning, Do: strings.TrimSuffix("cnictl lint FILE says where; to write there: "+c.Remedy, "; to write there: ")}, c.Severity, name))
	}
	if c := trace.Codes().Find(name); c != nil {
		list = append(list, newFinding(&Known{ID: name, Means: c.Meaning, Do: c.Remedy}, c.Severity, name))
	}
	return list
}

func newFinding(k *Known, severity finding.Severity, about string) Finding {
	f := Finding{Here: []string{}, Doctor: []doctor.Finding{}, known: k}
	f.Code, f.Severity, f.Meaning, f.Remedy, f.Summary = k.ID, severity, k.Means, k.Do, about
	return f
}
