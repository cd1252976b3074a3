package operator

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestRepairHostile has a container put things into its namespace that look like its interface, or like another container's. Nothing of the
// other one changes, and what of this one can't be put back is said.
func TestRepairHostile(t *testing.T) {
	t.Parallel()
	for _, h := range []struct{ name, inside string }{
		{"no interface", "ip link del eth0"},
		{"another interface of the same name and MAC address", "MAC=$(cat /sys/class/net/eth0/address); ip link del eth0; ip link add eth0 address MAC type bridge"},
		{"a veth that claims the other's host end as its peer", "ip link del eth0; ip link add eth0 address MAC type veth peer name p0 index OTHER; ip link set p0 up"},
		{"a renamed interface", "ip link set eth0 down; ip link set eth0 name eth7"},
		{"swapped interfaces", "for l in eth0 net1; do ip link set $l down; done; ip link set eth0 name x; ip link set net1 name eth0; ip link set x name net1; ip link set eth0 up; ip link set net1 up"},
	} {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			bad, good := p.add(harmtest.Entered(harmtest.Usual), "bad", port(8080, 80, "tcp")), p.add(harmtest.Entered(harmtest.Usual), "good", port(8081, 80, "tcp"))
			rt := bad.RuntimeConf(nil)
			rt.IfName = "net1"
			p.attachAs(strings.NewReplacer("demo", "second", "10.88.0", "10.89.0", "fd00:88", "fd00:89").Replace(harmtest.Entered(harmtest.Bridge)), rt)
			mac := strings.TrimSpace(bad.MustRun(t, "sh", "-c", "ip -o link show eth0 | sed 's/.*ether \\([^ ]*\\).*/\\1/'"))
			other := strings.TrimSpace(p.host.MustRun(t, "cat", "/sys/class/net/"+good.End+"/ifindex"))
			before, inside := p.host.Snapshot(t), good.Snapshot(t)
			bad.MustRun(t, "sh", "-ec", strings.NewReplacer("MAC=$(cat /sys/class/net/eth0/address); ", "", "MAC", mac, "OTHER", other).Replace(h.inside))
			hurt := bad.Snapshot(t)
			p.script("nft flush ruleset")
			code, printed := p.cnictl("repair")
			if code != 1 || !strings.Contains(printed, "restart the container") {
				t.Errorf("exit code %d\n%s", code, printed)
			}
			after := p.host.Snapshot(t)
			for _, line := range strings.Split(before.Diff(after, harmtest.OfRepair...), "\n") {
				// Of the host there is only less than before, of the container itself and of what went with its interface.
				ofBad := strings.Contains(line, "/"+bad.ID+"/") || strings.Contains(line, bad.End)
				if line != "" && !(strings.HasPrefix(line, "- ") && (ofBad || strings.Contains(line, "8080") || strings.Contains(line, "10.89.0") || strings.Contains(line, "fd00-89"))) {
					t.Errorf("on the host: %s", line)
				}
			}
			if diff := inside.Diff(good.Snapshot(t)); diff != "" {
				t.Errorf("the other container:\n%s", diff)
			}
			if diff := hurt.Diff(bad.Snapshot(t)); strings.Contains(diff, "10.88.0.2") {
				t.Errorf("an interface that is not the attachment's has got its address:\n%s", diff)
			}
		})
	}
}

// TestRepairReused leaves the namespace alone that another container has at the path of one whose DEL never came.
func TestRepairReused(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	gone := p.add(harmtest.Conflist(harmtest.Usual), "path", port(8080, 80, "tcp"))
	gone.Pod.Replace(t)
	rt := gone.RuntimeConf(nil)
	rt.ContainerID = "another"
	p.attachAs(harmtest.Conflist(harmtest.Usual), rt)
	gone.SetLoopbackUp(t)
	before, inside := p.host.Snapshot(t), gone.Snapshot(t)
	p.script("nft flush ruleset")
	printed := p.must("repair")
	if !strings.Contains(printed, "repaired  demo/another/eth0") || strings.Contains(printed, "repaired  demo/"+gone.ID) {
		t.Errorf("repair says:\n%s", printed)
	}
	if diff := inside.Diff(gone.Snapshot(t)); diff != "" {
		t.Errorf("in the namespace:\n%s", diff)
	}
	for _, line := range strings.Split(before.Diff(p.host.Snapshot(t), harmtest.OfRepair...), "\n") {
		// The guard of a link is for published ports, which nobody has any more.
		if line != "" && !(strings.HasPrefix(line, "- nft ") && (strings.Contains(line, "/"+gone.ID+"/") || strings.Contains(line, "8080") || strings.Contains(line, "inside_v1"))) {
			t.Errorf("on the host: %s", line)
		}
	}
}

// TestRepairTaken takes no address back that somebody else has by now.
func TestRepairTaken(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	first := p.add(harmtest.Entered(harmtest.Usual), "first", port(8080, 80, "tcp"))
	p.script("rm /var/lib/cni/networks/demo/10.88.0.2 /var/lib/cni/networks/demo/last_reserved_ip.0")
	second := p.add(harmtest.Entered(harmtest.Usual), "second", nil)
	if second.Address != first.Address {
		t.Fatalf("addresses %s and %s", first.Address, second.Address)
	}
	first.MustRun(t, "ip", "address", "flush", "dev", "eth0")
	before, inside, hurt := p.host.Snapshot(t), second.Snapshot(t), first.Snapshot(t)
	code, printed := p.cnictl("repair")
	if code != 1 || !strings.Contains(printed, "10.88.0.2 of container "+first.ID) {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...) + inside.Diff(second.Snapshot(t)); diff != "" {
		t.Errorf("of the other container:\n%s", diff)
	}
	if diff := hurt.Diff(first.Snapshot(t)); strings.Contains(diff, "10.88.0.2") {
		t.Errorf("the address is there twice:\n%s", diff)
	}
}

// TestRepairOnePort: two containers have been given one port of the host, and have lost it. The older one gets it back, and the other is reported.
func TestRepairOnePort(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	first := p.add(harmtest.Conflist(harmtest.Usual), "first", port(8080, 80, "tcp"))
	p.script("nft flush ruleset")
	both := map[string]any{"portMappings": []map[string]any{
		{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 8081, "containerPort": 80, "protocol": "tcp"},
	}}
	p.add(harmtest.Conflist(harmtest.Usual), "second", both)
	p.script("nft flush ruleset")
	code, printed := p.cnictl("repair")
	if code != 1 || !strings.Contains(printed, "tcp/8080 is demo/"+first.ID+"/eth0's by now") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if rules := p.host.MustRun(t, "nft", "list", "ruleset"); strings.Contains(rules, "8081") {
		t.Errorf("a part of what the other one had is back:\n%s", rules)
	}
	first.Serve(t)
	harmtest.Dial(t, &p.outside.Namespace, netlab.HostIPv4+":8080")
}

// TestRepairForeign asks no plugins that are not cnibox's, and repairs nothing in their name: their DEL would not know of it.
func TestRepairForeign(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.add(harmtest.Conflist(harmtest.Bridge+`,`+harmtest.Ports), "web", port(8080, 80, "tcp"))
	p.host.InstallPlugin(t, "portmap", "/bin/true")
	p.script("nft flush ruleset")
	printed := p.must("repair")
	if !strings.Contains(printed, "repaired") || !strings.Contains(printed, "not asked: portmap") {
		t.Errorf("repair says:\n%s", printed)
	}
	if rules := p.host.MustRun(t, "nft", "list", "ruleset"); strings.Contains(rules, "8080") || !strings.Contains(rules, "10.88.0.2") {
		t.Errorf("rules:\n%s", rules)
	}
}

// TestRepairForeignLink publishes no ports for a container whose link is gone, whoever has made that.
func TestRepairForeignLink(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	web := p.add(harmtest.Conflist(harmtest.Usual), "web", port(8080, 80, "tcp"))
	p.host.InstallPlugin(t, "bridge", "/bin/true")
	web.MustRun(t, "ip", "link", "del", "eth0")
	p.script("nft flush ruleset")
	if code, printed := p.cnictl("repair"); code != 1 || !strings.Contains(printed, "restart the container") || !strings.Contains(printed, "not asked: bridge") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if rules := p.host.MustRun(t, "nft", "list", "ruleset"); rules != "" {
		t.Errorf("rules:\n%s", rules)
	}
}

// TestRepairReference repairs what the reference plugins have made where cnibox has taken their place: in iptables, if it was there, so that
// no port is published twice.
func TestRepairReference(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, keys, backend, harm string }{
		{"iptables", `"iptables"`, `"backend": "iptables",`, "nft flush ruleset"},
		{"nftables", `"nftables"`, `"backend": "nftables",`, "nft flush ruleset"},
		{"no backend", "", "", "iptables -t nat -F; ip6tables -t nat -F"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			p.host.InstallFrom(t, netlab.Reference(t), "bridge", "host-local", "portmap")
			network := harmtest.Entered(harmtest.Usual)
			if tt.keys != "" {
				network = strings.NewReplacer(`"ipMasq": true`, `"ipMasq": true, "ipMasqBackend": `+tt.keys, `"type": "portmap"`, tt.backend+`"type": "portmap"`).Replace(network)
			}
			web := p.add(network, "web", port(8080, 80, "tcp"))
			web.Serve(t)
			p.host.InstallPlugins(t, "bridge", "host-local", "portmap")
			before := p.host.Snapshot(t)
			if printed := p.must("repair"); !strings.Contains(printed, "1 attachment: 1 right") {
				t.Errorf("what the reference has made is not right:\n%s", printed)
			}
			if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...); diff != "" {
				t.Errorf("what is right has changed:\n%s", diff)
			}
			open := harmtest.Dial(t, &p.outside.Namespace, netlab.HostIPv4+":8080")
			p.script(tt.harm + "; ip link set " + web.End + " nomaster; ip address flush dev demo0")
			web.MustRun(t, "ip", "address", "flush", "dev", "eth0")
			p.must("repair")
			if err := harmtest.Echo(open); err != nil {
				t.Error(err)
			}
			harmtest.Dial(t, &p.outside.Namespace, netlab.HostIPv4+":8080")
			if rules := p.host.MustRun(t, "nft", "list", "ruleset"); tt.name == "no backend" && strings.Contains(rules, "inet cnibox ") {
				t.Errorf("what was in iptables is in nftables, too:\n%s", rules)
			}
			if err := p.host.DelList(network, web.RuntimeConf(port(8080, 80, "tcp"))); err != nil {
				t.Fatal(err)
			}
			if left := p.host.MustRun(t, "sh", "-c", "nft list ruleset; iptables-save"); strings.Contains(left, "8080") || strings.Contains(left, web.ID) {
				t.Errorf("left after DEL:\n%s", left)
			}
		})
	}
}

// TestRepairRace has containers deleted while they are repaired, at every moment of a repair. What was put back behind a DEL's back is removed
// again.
func TestRepairRace(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	stays := p.add(harmtest.Conflist(harmtest.Limited), "stays", port(9000, 80, "tcp"))
	before := p.host.Snapshot(t)
	for i := range 24 {
		c := p.add(harmtest.Conflist(harmtest.Limited), "goes"+strconv.Itoa(i), port(8000, 80, "tcp"))
		p.script("nft delete table inet cnibox; ip link set " + c.End + " nomaster; tc qdisc del dev " + c.End + " root; ip link del " + c.IFB)
		repaired := make(chan string)
		go func() {
			_, printed := p.cnictl("repair")
			repaired <- printed
		}()
		const begins, step = 280, 10 // milliseconds: when the second look begins, and how far apart the tries are
		netlab.Pause(time.Duration(begins+step*i) * time.Millisecond)
		if err := p.host.DelList(harmtest.Conflist(harmtest.Limited), c.RuntimeConf(port(8000, 80, "tcp"))); err != nil {
			t.Error(err)
		}
		printed := <-repaired
		c.Pod.Delete(t)
		if diff := before.Diff(p.host.Snapshot(t), append(harmtest.OfRepair, "file /var/lib/cni/networks/demo/last", "file /var/lib/cni/networks/.cnibox", "file /run/netns")...); diff != "" {
			t.Errorf("left by try %d:\n%s\n%s", i, diff, printed)
		}
	}
	if err := p.host.CheckList(harmtest.Conflist(harmtest.Limited), stays.RuntimeConf(port(9000, 80, "tcp"))); err != nil {
		t.Error(err)
	}
}

// TestRepairTwice has two repairs at once.
func TestRepairTwice(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	for i := range 5 {
		p.add(harmtest.Conflist(harmtest.Limited), "web"+strconv.Itoa(i), port(8000+i, 80, "tcp"))
	}
	before := p.host.Snapshot(t)
	p.script("nft flush ruleset; ip link del demo0")
	codes := make(chan int)
	for range 2 {
		go func() {
			code, _ := p.cnictl("repair")
			codes <- code
		}()
	}
	if one, two := <-codes, <-codes; one+two != 0 {
		t.Errorf("exit codes %d and %d", one, two)
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...); diff != "" {
		t.Errorf("after both:\n%s", diff)
	}
}

// TestRepairChosen repairs what is named, and no more.
func TestRepairChosen(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	one, two := p.add(harmtest.Conflist(harmtest.Usual), "one", nil), p.add(harmtest.Conflist(harmtest.Usual), "two", nil)
	p.script("ip link set " + one.End + " nomaster; ip link set " + two.End + " nomaster")
	for _, name := range []string{one.Address, one.ID[:8], one.End} {
		printed := p.must("repair", name)
		if !strings.Contains(printed, "1 attachment: ") {
			t.Errorf("repair %s:\n%s", name, printed)
		}
	}
	var document struct {
		DryRun      bool
		Counts      map[string]int
		Attachments []struct {
			ContainerID, Outcome string
			Plugins              []struct{ Plugin, Found, Left, Remedy string }
		}
	}
	code, printed := p.cnictl("repair", "demo", "--dry-run", "--json")
	if err := json.Unmarshal([]byte(printed), &document); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v\n%s", code, err, printed)
	}
	if document.Counts["right"] != 1 || document.Counts["wrong"] != 1 || !document.DryRun {
		t.Errorf("%s", printed)
	}
	for _, a := range document.Attachments {
		if (a.ContainerID == two.ID) != (a.Outcome == "wrong") || a.Outcome == "wrong" && (a.Plugins[0].Plugin != "bridge" || a.Plugins[0].Remedy == "") {
			t.Errorf("%s", printed)
		}
	}
	if code, printed := p.cnictl("repair", "nobody"); code != 1 || !strings.Contains(printed, `is called "nobody"`) {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}

// TestRepairLinkLocal has the host find the container again by IPv6 when somebody has flushed the addresses of the gateway's link, the kernel's
// own ones among them.
func TestRepairLinkLocal(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]struct{ network, link string }{"bridge": {harmtest.Usual, "demo0"}, "ptp": {harmtest.Ptp, "END"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			p.outside.AddRoute(t, "fd00:88::/64")
			c := p.add(harmtest.Conflist(h.network), "web", nil)
			if err := p.outside.Ping("fd00:88::2", netlab.Patience); err != nil {
				t.Fatal(err)
			}
			link := strings.Replace(h.link, "END", c.End, 1)
			p.script("ip address flush dev " + link + "; ip -6 neigh flush dev " + link)
			if code, printed := p.cnictl("repair"); code != 0 || !strings.Contains(printed, "the address fe80::") {
				t.Errorf("exit code %d\n%s", code, printed)
			}
			if err := p.outside.Ping("fd00:88::2", netlab.Patience); err != nil {
				t.Errorf("after the repair: %v", err)
			}
		})
	}
}
