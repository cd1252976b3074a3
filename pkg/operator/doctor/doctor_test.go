package doctor

import (
	"slices"
	"testing"

	"github.com/cnibox/cnibox/test/pagetest"
)

// TestCodes compares the codes of the checks with their table, and that with the manual's.
func TestCodes(t *testing.T) {
	pagetest.Codes(t, Codes(), "../../../docs/operate/cnictl.md", "doctor")
	var ofChecks []string
	names := codes.Names()
	for _, c := range checks {
		ofChecks = append(ofChecks, c.codes.Names()...)
	}
	slices.Sort(ofChecks)
	slices.Sort(names)
	if !slices.Equal(names, slices.Compact(ofChecks)) {
		t.Errorf("declared are\n%v\nand the checks find\n%v", names, ofChecks)
	}
}

func TestCommand(t *testing.T) {
	for want, words := range map[string][]string{
		"mv /etc/cni/net.d/10-a.conflist /x":     {"mv", "/etc/cni/net.d/10-a.conflist", "/x"},
		`rm '/var/lib/cni/results/a b'`:          {"rm", "/var/lib/cni/results/a b"},
		`rm 'it'\''s;reboot' '$(reboot)' '' '*'`: {"rm", "it's;reboot", "$(reboot)", "", "*"},
	} {
		if got := command(words...); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := comment("%s", "a\nreboot"); got != "# a reboot" {
		t.Errorf("a comment of two lines is %q", got)
	}
}
