package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/test/pagetest"
)

// TestCodes compares the codes of the checks with their table, and that with the manual's.
func TestCodes(t *testing.T) {
	pagetest.Codes(t, Codes(), "../../../docs/operate/cnictl/doctor.md", "All findings")
	var ofChecks []string
	names := Codes().Names()
	for _, c := range checks {
		ofChecks = append(ofChecks, c.codes.Names()...)
	}
	slices.Sort(ofChecks)
	slices.Sort(names)
	if !slices.Equal(names, slices.Compact(ofChecks)) {
		t.Errorf("declared are\n%v\nand the checks find\n%v", names, ofChecks)
	}
}

// TestFoundOfHostileNetwork has no command name a network whose name could be an option, or anything else.
func TestFoundOfHostileNetwork(t *testing.T) {
	for _, name := range []string{"-x", "--help", "a b", "a\nreboot", "../a"} {
		f := found(etcdNotTold, name, finding.Run("cnictl", "leases", "keep", name), "something")
		if f.Fixable || f.Commands != nil || !strings.HasPrefix(f.Remedy, "# ") || strings.Contains(f.Remedy, "\n") {
			t.Errorf("%q: %+v", name, f)
		}
	}
	if f := found(etcdNotTold, "demo", finding.Run("cnictl", "leases", "keep", "demo"), "something"); !f.Fixable || f.Remedy != "cnictl leases keep demo" || len(f.Commands) != 1 {
		t.Errorf("%+v", f)
	}
}
