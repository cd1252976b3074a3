package operator

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestRepairForcesNothing leaves a bridge its other address, though the network has forceAddress: another network has it since.
func TestRepairForcesNothing(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	forced := harmtest.With(`"forceAddress": true`)
	p.add(harmtest.Conflist(forced), "first", nil)
	p.add(strings.NewReplacer(`"demo"`, `"second"`, "10.88.0", "10.89.0", "fd00:88", "fd00:89").Replace(harmtest.Conflist(forced)), "second", nil)
	before := p.host.Snapshot(t)
	code, printed := p.cnictl("repair")
	if code != 1 || !strings.Contains(printed, "already has an IP address different from 10.88.0.1/24: 10.89.0.1/24") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...); diff != "" {
		t.Errorf("what changed:\n%s", diff)
	}
}

// TestRepairStealsNoRoute leaves the host's route to an address to the container that was given it last.
func TestRepairStealsNoRoute(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	same := harmtest.Conflist(`{"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.66.0.5/24", "gateway": "10.66.0.1"}]}}`)
	p.add(same, "first", nil)
	second := p.add(same, "second", nil)
	before := p.host.Snapshot(t)
	if code, printed := p.cnictl("repair"); code != 1 || !strings.Contains(printed, "does not route 10.66.0.5") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...); diff != "" {
		t.Errorf("the route of %s:\n%s", second.End, diff)
	}
}

// TestRepairUDP leaves flows to the container as they are, and has those find it that began while the port was not published.
func TestRepairUDP(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	web := p.add(harmtest.Conflist(harmtest.Usual), "web", port(5353, 53, "udp"))
	web.ServeUDP(t, ":53")
	dialUDP := func() net.Conn {
		conn, err := p.outside.DialContext(context.Background(), "udp", netlab.HostIPv4+":5353")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	// A datagram may be lost, or answered that nobody is there.
	answer := func(conn net.Conn) error {
		_ = conn.SetDeadline(time.Now().Add(silence))
		if _, err := conn.Write([]byte("hello\n")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 100))
		return err
	}
	p.script("nft add table inet own; nft 'add chain inet own input { type filter hook input priority 0; }'; nft add rule inet own input ct state new counter") // flows are tracked
	old, late := dialUDP(), dialUDP()
	netlab.Eventually(t, func() error { return answer(old) })
	p.script("nft delete table inet cnibox")
	if err := answer(late); err == nil {
		t.Fatal("the port is published though the rules are gone")
	}
	flows := func() string {
		return p.host.MustRun(t, "sh", "-c", "cat /proc/net/nf_conntrack 2>/dev/null || conntrack -L -p udp 2>/dev/null || true")
	}
	before := flows()
	p.must("repair")
	for name, conn := range map[string]net.Conn{"before": old, "meanwhile": late} {
		if err := netlab.Await(func() error { return answer(conn) }); err != nil {
			t.Errorf("a flow from %s: %v\n%s\n%s", name, err, before, flows())
		}
	}
}

// TestRepairSwapped gives no interface the address of another one of its container, whatever they are called by now.
func TestRepairSwapped(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	pod := p.host.NewPod(t, "swaps")
	first := harmtest.Entered(`{"type": "macvlan", "master": "uplink0", ` + harmtest.AddressKeys + `}`)
	p.attachAs(first, pod.RuntimeConf(nil))
	rt := pod.RuntimeConf(nil)
	rt.IfName = "net1"
	p.attachAs(strings.NewReplacer("demo", "second", "10.66.0", "10.67.0", "fd00:66", "fd00:67").Replace(first), rt)
	pod.MustRun(t, "sh", "-ec", "ip link set eth0 down; ip link set net1 down; ip link set eth0 name x; ip link set net1 name eth0; ip link set x name net1; ip address flush dev eth0; ip address flush dev net1")
	before := pod.Snapshot(t)
	if code, printed := p.cnictl("repair"); code != 1 || !strings.Contains(printed, "is not the attachment's") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(pod.Snapshot(t)); diff != "" {
		t.Errorf("what changed:\n%s", diff)
	}
}

// TestRepairAllowlist sets no sysctl that the administrator has not allowed.
func TestRepairAllowlist(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	web := p.add(harmtest.Entered(harmtest.Tuned), "web", nil)
	p.script("mkdir -p /etc/cni/tuning; echo '^net.core' >/etc/cni/tuning/allowlist.conf")
	web.MustRun(t, "sh", "-c", "echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_filter")
	if code, printed := p.cnictl("repair"); code != 1 || !strings.Contains(printed, "is not allowed") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if value := web.MustRun(t, "cat", "/proc/sys/net/ipv4/conf/eth0/arp_filter"); value != "0\n" {
		t.Errorf("the sysctl is %q", value)
	}
}

// TestRepairSkips says why it does not look at attachments.
func TestRepairSkips(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.add(strings.Replace(harmtest.Conflist(harmtest.Usual), `"name"`, `"disableCheck": true, "name"`, 1), "unchecked", nil)
	torn := p.add(strings.Replace(harmtest.Conflist(harmtest.Usual), `"demo"`, `"torn"`, 1), "torn", nil)
	p.script(`cd /var/lib/cni/results; sed -i 's/"result": *{/"result": [{/; s/}$/}]/' torn-*`)
	gone := p.add(harmtest.Conflist(harmtest.Usual), "gone", nil)
	gone.Pod.Delete(t)
	p.script("nft flush ruleset; touch -d '5 minutes ago' /var/lib/cni/networks/*/* /var/lib/cni/results/*")
	before := p.host.Snapshot(t)
	code, printed := p.cnictl("repair")
	if code != 1 {
		t.Errorf("one that is alive is not looked at, and the exit code is %d\n%s", code, printed)
	}
	for _, text := range []string{"its network has disableCheck", torn.ID, "1 gone"} {
		if !strings.Contains(printed, text) {
			t.Errorf("repair does not say %q:\n%s", text, printed)
		}
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...); diff != "" {
		t.Errorf("what changed:\n%s", diff)
	}
}

// TestRepairBesideOthers repairs all the time while containers come and go. It finds nothing to put back, and is in nobody's way.
func TestRepairBesideOthers(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.add(harmtest.Conflist(harmtest.Limited), "stays", port(9000, 80, "tcp"))
	before := p.host.Snapshot(t)
	ended, repaired := make(chan struct{}), make(chan string)
	go func() {
		var all strings.Builder
		for {
			_, printed := p.cnictl("repair")
			all.WriteString(printed)
			select {
			case <-ended:
				repaired <- all.String()
				return
			default:
			}
		}
	}()
	const workers, each = 3, 6
	done := make(chan error)
	for w := range workers {
		pod := p.host.NewPod(t, fmt.Sprintf("comes%d", w))
		go func() {
			rt := pod.RuntimeConf(port(9001+w, 80, "tcp"))
			var err error
			for i := 0; i < each && err == nil; i++ {
				rt.ContainerID = fmt.Sprintf("comes%d-%d", w, i)
				if _, err = p.host.AddList(harmtest.Conflist(harmtest.Limited), rt); err == nil {
					err = p.host.CheckList(harmtest.Conflist(harmtest.Limited), rt)
				}
				if err == nil {
					err = p.host.DelList(harmtest.Conflist(harmtest.Limited), rt)
				}
			}
			done <- err
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	close(ended)
	if printed := <-repaired; strings.Contains(printed, "put back") {
		t.Errorf("what was being made or taken away was repaired:\n%s", printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), append(harmtest.OfRepair, "file /var/lib/cni/networks/demo/last", "file /var/lib/cni/networks/.cnibox", "file /run/netns", "mount /run/netns")...); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
}

// TestRepairDeleting puts nothing back once a DEL has begun, however long that takes; an ADD after it counts again.
func TestRepairDeleting(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	web := p.add(harmtest.Conflist(harmtest.Limited), "web", port(8080, 80, "tcp"))
	del := web.Call("DEL", `{"cniVersion": "1.1.0", "name": "demo", "type": "portmap"}`)
	if r := p.host.Exec(t, "portmap", del); r.ExitCode != 0 {
		t.Fatal(r)
	}
	p.script("nft flush ruleset; tc qdisc del dev " + web.End + " root")
	before := p.host.Snapshot(t)
	if printed := p.must("repair"); !strings.Contains(printed, "its DEL has begun") || strings.Contains(printed, "put back") {
		t.Errorf("repair says:\n%s", printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...); diff != "" {
		t.Errorf("what changed:\n%s", diff)
	}
	rt := web.RuntimeConf(port(8080, 80, "tcp"))
	if err := p.host.DelList(harmtest.Conflist(harmtest.Limited), rt); err != nil {
		t.Fatal(err)
	}
	p.attachAs(harmtest.Conflist(harmtest.Limited), rt)
	p.script("nft flush ruleset")
	if printed := p.must("repair"); !strings.Contains(printed, "put back: publish") {
		t.Errorf("after the next ADD repair says:\n%s", printed)
	}
}
