package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// notes are what happened, a line each.
const notes = "/run/notes"

// hold keeps repairs from ending while it is there.
const hold = "/run/hold"

// noter is a cnictl that notes when it is called.
const noter = `#!/bin/sh
echo $1 >>` + notes + `
while [ -e ` + hold + ` ]; do sleep 0.1; done
echo $1 ends >>` + notes + `
`

func must(t *testing.T, script string) (printed string) {
	t.Helper()
	printed, err := inside(script)
	if err != nil {
		t.Fatal(err)
	}
	return printed
}

func install(t *testing.T, tool string, program []byte) {
	t.Helper()
	_ = os.Remove(tool)
	if err := os.MkdirAll(filepath.Dir(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tool, program, 0o755); err != nil {
		t.Fatal(err)
	}
}

// await waits until the notes end as they should, and nothing is under way.
func await(t *testing.T, last string) (noted string) {
	t.Helper()
	netlab.Eventually(t, func() error {
		text, _ := os.ReadFile(notes)
		if !strings.HasSuffix(string(text), last+"\n") || must(t, "systemctl list-jobs --no-legend") != "" {
			return fmt.Errorf("noted %q, want %q at the end; jobs: %s", text, last, must(t, "systemctl list-jobs; systemctl status 'cnibox-*' || true"))
		}
		_ = os.Remove(notes)
		noted = strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
		return nil
	})
	return noted
}

// TestRepairAfter: what flushes rules is followed by a repair, and what does not is not.
func TestRepairAfter(t *testing.T) {
	install(t, tool, []byte(noter))
	_ = os.Remove(notes)
	must(t, "systemctl enable cnibox-repair-after@nftables.service cnibox-repair-after@ufw.service")
	for _, c := range []struct{ script, want string }{
		{"systemctl start nftables", "nftables start, repair, repair ends"},
		{"systemctl reload nftables", "nftables reload, repair, repair ends"},
		{"systemctl restart nftables", "nftables stop, nftables start, repair, repair ends"},
		{"systemctl start ufw", "ufw start, repair, repair ends"},
		{"systemctl restart ufw", "ufw stop, ufw start, repair, repair ends"},
		{"systemctl stop ufw", "ufw stop"},
		{"systemctl reload nftables", "nftables reload, repair, repair ends"},
		{"systemctl stop nftables", "nftables stop"},
		{"systemctl start nftables", "nftables start, repair, repair ends"},
		// While a repair is under way, which may have looked already.
		{"touch " + hold + "; systemctl reload nftables; until grep -q repair " + notes + "; do sleep 0.1; done; systemctl reload nftables; " +
			"until [ $(grep -c repair " + notes + ") = 2 ]; do sleep 0.1; done; rm " + hold, "nftables reload, repair, nftables reload, repair, repair ends"},
		{"systemctl stop nftables", "nftables stop"},
	} {
		must(t, c.script)
		if got := await(t, c.want[strings.LastIndex(", "+c.want, ", "):]); got != c.want {
			t.Errorf("%s: %s; want %s", c.script, got, c.want)
		}
	}
}

// TestRepairAfterFirewalld: a repair follows whatever has firewalld reload.
func TestRepairAfterFirewalld(t *testing.T) {
	install(t, tool, []byte(noter))
	_ = os.Remove(notes)
	must(t, "sed -i 's/^FirewallBackend=.*/FirewallBackend=iptables/; s/^IPv6_rpfilter=.*/IPv6_rpfilter=no/' /etc/firewalld/firewalld.conf")
	must(t, "systemctl enable cnibox-repair-firewalld.service")
	// As firewall-cmd calls it, which waits for 25 seconds at most.
	const call = "busctl --timeout=10min call org.fedoraproject.FirewallD1 /org/fedoraproject/FirewallD1 org.fedoraproject.FirewallD1 "
	const forge = "for n in 1 2 3 4 5; do setpriv --reuid 65534 --clear-groups busctl emit /org/fedoraproject/FirewallD1 org.fedoraproject.FirewallD1 Reloaded; done; "
	for _, script := range []string{
		"systemctl start firewalld", call + "reload", call + "completeReload", "systemctl reload firewalld", "systemctl restart firewalld",
		forge + call + "reload", call + "reload", // what follows from forged signals comes before what follows from the last reload
	} {
		must(t, script)
		if got := await(t, "repair ends"); got != "repair, repair ends" {
			t.Errorf("%s: %s", script, got)
		}
	}
	must(t, "systemctl stop firewalld")
	if state, err := inside("systemctl is-active cnibox-repair-firewalld"); err == nil {
		t.Errorf("without firewalld the unit is %s", state)
	}
}
