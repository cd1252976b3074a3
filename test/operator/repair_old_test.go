package operator

import (
	"strings"
	"testing"
)

// CHECK came with CNI 0.4.0, and many networks are older (flannel's own is of 0.3.1): their containers are repaired, too.
func TestRepairOldNetwork(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.add(strings.Replace(demo, "1.1.0", "0.3.1", 1), "old", port(8080, 80, "tcp"))
	p.host.MustRun(t, "nft", "flush", "ruleset")
	if printed := p.must("repair"); !strings.Contains(printed, "repaired") {
		t.Errorf("repair says:\n%s", printed)
	}
	if rules := p.host.MustRun(t, "nft", "list", "ruleset"); !strings.Contains(rules, "8080") {
		t.Errorf("the port is not published again:\n%s", rules)
	}
}
