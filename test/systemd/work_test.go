package systemd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const demo = `{"cniVersion": "1.1.0", "repair": "all", "name": "demo", "plugins": [
	{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}},
	{"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}},
	{"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall"},
	{"type": "bandwidth", "ingressRate": 1000000000, "ingressBurst": 100000000, "egressRate": 1000000000, "egressBurst": 100000000}]}`

// installTools installs cnictl and the plugins, and a network of them.
func installTools(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(os.Getenv("CNIBOX_BIN_DIR"), "cnictl"))
	if err != nil {
		t.Fatal(err)
	}
	install(t, tool, program)
	install(t, "/etc/cni/net.d/10-demo.conflist", []byte(demo))
	must(t, "mkdir -p /opt/cni/bin; cnictl install --dir /opt/cni/bin --from $CNIBOX_BIN_DIR/cnibox")
}

// TestWork has the units do their work, with no more rights than they have: this kernel has iptables alone.
func TestWork(t *testing.T) {
	installTools(t)
	must(t, `set -e; mkdir -p /var/lib/prometheus/node-exporter
		port=8080; for name in web db gone; do ip netns add $name; cnictl add demo /run/netns/$name --id $name -p $((port++)):80; done
		cnictl repair --dry-run
		iptables -t nat -F; iptables -F; ip -n web addr flush dev eth0; ip -n db route flush table main; ip addr flush dev demo0
		ip link set $(ip -o link show master demo0 | sed 's/^[0-9]*: \([^@:]*\).*/\1/;q') nomaster; ip netns exec web sysctl -qw net.ipv4.conf.eth0.log_martians=0
		ip netns del gone; find /var/lib/cni -type f -exec touch -d "5 minutes ago" {} +`)
	if printed, err := inside("cnictl repair --dry-run"); err == nil {
		t.Errorf("nothing is wrong:\n%s", printed)
	}
	must(t, "systemctl start cnibox-repair; for name in web db; do cnictl check demo /run/netns/$name --id $name || exit 1; done")

	must(t, "systemctl start cnibox-gc || { tail -5 "+said+"; exit 1; }")
	var report struct {
		Goes, Stays []struct{ ContainerID string }
	}
	text, err := os.ReadFile("/var/lib/cnibox/gc.json")
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil || len(report.Goes) != 1 || report.Goes[0].ContainerID != "gone" || len(report.Stays) != 2 {
		t.Errorf("gc: error %v, report %s", err, text)
	}
	// As the guide has it.
	guide, err := os.ReadFile("../../docs/operate/cnictl/systemd.md")
	if err != nil {
		t.Fatal(err)
	}
	_, override, _ := strings.Cut(string(guide), "`systemctl edit cnibox-gc`:\n\n```\n")
	override, _, _ = strings.Cut(override, "```")
	install(t, "/run/override.conf", []byte(override))
	must(t, "mkdir -p /etc/systemd/system/cnibox-gc.service.d; cp /run/override.conf /etc/systemd/system/cnibox-gc.service.d/; systemctl daemon-reload; systemctl start cnibox-gc")
	if printed := must(t, "cnictl gc; ls /var/lib/cni/results"); !strings.Contains(printed, "nothing to remove; 2 in use") || strings.Contains(printed, "demo-gone") {
		t.Errorf("after gc --apply:\n%s", printed)
	}

	must(t, "systemctl start cnibox-metrics; cnictl metrics >/run/outside.prom")
	if diff, err := inside("cd /run; for f in outside.prom /var/lib/prometheus/node-exporter/cnibox.prom; do grep -v timestamp $f >$(basename $f).text; done; diff outside.prom.text cnibox.prom.text"); err != nil {
		t.Errorf("metrics of the unit and of root: %v\n%s", err, diff)
	}
	must(t, "systemctl enable --now cnibox-gc.timer cnibox-metrics.timer")
	if printed := must(t, "systemctl list-timers --all --no-legend"); strings.Count(printed, "cnibox-") != 4 {
		t.Errorf("timers:\n%s", printed)
	}
}
