package finding_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

func TestTrace(t *testing.T) {
	var codes finding.Codes
	leaf := codes.Declare(finding.Code{Name: "leaf", Severity: finding.Error})
	branch := codes.Declare(finding.Code{Name: "branch", Severity: finding.Error, Brings: finding.Codes{leaf}})
	root := codes.Declare(finding.Code{Name: "root", Severity: finding.Error, Brings: finding.Codes{branch}})
	mend, other := finding.Run("mend"), finding.Run("mend", "other")
	for _, test := range []struct {
		name string
		list []finding.Finding
		want string // of each finding its cause, and how many come of it
	}{
		{"alone", of("a", leaf.Found(nil, "")), "-0"},
		{"a cause, wherever it stands", of("a", leaf.Found(nil, ""), branch.Found(nil, "")), "branch0 -1"},
		{"of another network", append(of("a", leaf.Found(nil, "")), of("b", branch.Found(nil, ""))...), "-0 -0"},
		{"of the whole node", append(of("a", leaf.Found(nil, "")), branch.Found(nil, "")), "branch0 -1"},
		{"the first of all", of("a", leaf.Found(nil, ""), branch.Found(nil, ""), root.Found(nil, "")), "root0 root0 -2"},
		{"the same commands", append(of("a", leaf.Found(mend, ""), leaf.Found(other, "")), of("b", leaf.Found(mend, ""))...), "-1 -0 leaf0"},
		{"no commands", of("a", leaf.Found(finding.Say("think"), ""), leaf.Found(finding.Say("think"), "")), "-0 -0"},
		{"other codes, the same commands", of("a", leaf.Found(mend, ""), root.Found(mend, "")), "-0 -0"},
	} {
		finding.Trace(test.list, codes)
		var got []string
		for _, f := range test.list {
			because := f.Because
			if because == "" {
				because = "-"
			}
			got = append(got, fmt.Sprint(because, f.Brings))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %s", test.name, got, test.want)
		}
	}
}

// of returns findings of a network.
func of(network string, list ...finding.Finding) []finding.Finding {
	for i := range list {
		list[i].Network = network
	}
	return list
}
