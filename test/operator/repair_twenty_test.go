package operator

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestRepairTwenty takes things from a node with twenty containers, to each of which somebody has a connection open, and has all of it back
// as it was before. It logs how long that takes.
func TestRepairTwenty(t *testing.T) {
	const many = 20
	for _, h := range []struct {
		harm
		firewalld string // its backend, if it runs
		repaired  int    // how many attachments are hit
	}{
		{harm{name: "nft flush ruleset", network: listLimited, host: "nft flush ruleset"}, "", many},
		{harm{name: "iptables -F -t nat", network: listOld, host: "iptables -F -t nat"}, "", many},
		{harm{name: "firewall-cmd --complete-reload, nftables", network: listGuarded("firewalld"), host: "firewall-cmd --complete-reload"}, "nftables", many},
		{harm{name: "firewall-cmd --complete-reload, iptables", network: listOld + `, {"type": "firewall"}`, host: "firewall-cmd --complete-reload"}, "iptables", many},
		{harm{name: "ip addr flush in a container", network: listUsual, inside: "ip address flush dev eth0"}, "", 1},
		{harm{name: "ip route flush in a container", network: listUsual, inside: "ip route flush table main; ip -6 route flush table main"}, "", 1},
		{harm{name: "port taken from the bridge", network: listUsual, host: "ip link set END nomaster"}, "", 1},
		{harm{name: "qdisc deleted", network: listLimited, host: "tc qdisc del dev END root; tc qdisc del dev END ingress"}, "", 1},
	} {
		t.Run(h.name, func(t *testing.T) {
			p := newPatient(t)
			if h.firewalld != "" {
				firewalldtest.Start(t, p.host, h.firewalld)
				// What comes from outside is to be forwarded, as the zone of containers lets all pass.
				p.script("firewall-cmd --zone=trusted --add-interface=" + netlab.UplinkName + "; firewall-cmd --permanent --zone=trusted --add-interface=" + netlab.UplinkName)
			}
			var containers []*container
			var open []net.Conn
			for i := range many {
				c := p.add(conflist(h.network), fmt.Sprintf("web%d", i), port(8000+i, 80, "tcp"))
				c.serve(t)
				containers = append(containers, c)
				open = append(open, dial(t, &p.outside.Namespace, fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i)))
			}
			hit := containers[many/2]
			before, inside := p.host.Snapshot(t), hit.Snapshot(t)
			p.script(strings.NewReplacer("END", hit.end, "ADDRESS", hit.address).Replace(h.host))
			if h.inside != "" {
				hit.MustRun(t, "sh", "-ec", h.inside)
			}
			begun := time.Now()
			code, printed := p.cnictl("repair")
			t.Logf("repair of %d attachments took %v", many, time.Since(begun).Round(time.Millisecond))
			if want := fmt.Sprintf("%d repaired", h.repaired); code != 0 || !strings.Contains(printed, want) {
				t.Errorf("exit code %d, want 0 and %s\n%s", code, want, printed)
			}
			if diff := before.Diff(p.host.Snapshot(t), ofRepair...) + inside.Diff(hit.Snapshot(t)); diff != "" {
				t.Errorf("after the repair:\n%s\n%s", diff, printed)
			}
			for i, conn := range open {
				if err := echo(conn); err != nil {
					t.Errorf("the connection to container %d that was open: %v", i, err)
				}
			}
			for i := range many {
				dial(t, &p.outside.Namespace, fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i))
			}
		})
	}
}
