package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/test/netlab"
)

// small is the network demo with ten addresses.
var small = strings.Replace(demo, `{"subnet": "10.88.0.0/24"}`, `{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.2", "rangeEnd": "10.88.0.11"}`, 1)

// age makes all that was attached some minutes old: gc spares what is younger than one.
const age = `touch -d "5 minutes ago" /var/lib/cni/networks/demo/*; touch -d "4 minutes ago" ` + resultsDir + "/*"

// alone is a network on a segment of the host.
const alone = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "macvlan", "master": "lan0"}]}`

// plain is the network demo without sysctls.
const plain = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "bridge", "bridge": "demo0", "isGateway": true,
	"ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}}]}`

// faultsOfState are those of what is written down, and of what is left over.
var faultsOfState = []fault{
	{code: "state-read-only", plant: shell("mount -o remount,ro /var/lib/cni"), works: adds},
	{code: "state-full", plant: shell("mount -o remount,size=64k /var/lib/cni; dd if=/dev/zero of=/var/lib/cni/waste bs=1k 2>/dev/null || :"), works: adds, says: "du -xah /var/lib/cni", remedy: shell("rm /var/lib/cni/waste")},
	{code: "sysctls-read-only", config: plain, plant: shell("mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys")},
	{code: "network-not-ready", config: alone, pods: []string{}, before: shell("ip link add lan0 up type bridge"), works: adds,
		plant: shell("ip link delete lan0"), says: "#", remedy: shell("ip link add lan0 up type bridge")},
	{code: "network-in-two-caches",
		plant: func(p *clinic) {
			p.must("add", "demo", p.host.NewPod(p, "other").Path(), "--id", "other", "--cache-dir", "/var/lib/cni/multus")
		},
		says:   "with another name, bridge and subnet",
		remedy: func(p *clinic) { p.must("del", "demo", "--id", "other", "--cache-dir", "/var/lib/cni/multus") }},
	{code: "cache-torn", pods: []string{"web", "db"}, before: shell(age), plant: shell("truncate -s 100 " + resultsDir + "/demo-web-eth0"),
		says: "start container web again", remedy: func(p *clinic) {
			p.must("del", "demo", p.pods["web"].Path(), "--id", "web")
			p.must("add", "demo", p.pods["web"].Path(), "--id", "web")
		}},
	{code: "cache-torn", kind: "of nobody", plant: shell("touch " + resultsDir + "/demo-gone-eth0")},
	{code: "pool-nearly-full", config: small, pods: []string{"web"},
		before: func(p *clinic) {
			for i := range 7 {
				p.admit(fmt.Sprint("dead", i))
			}
			p.shell(age)
		},
		plant: func(p *clinic) {
			p.admit("last")
			for name, pod := range p.pods {
				if name != "web" {
					pod.Delete(p)
				}
			}
			p.shell(age)
		}},
	{code: "gc-stopped", pods: []string{"web", "dead"}, before: shell(age),
		plant: func(p *clinic) {
			p.pods["dead"].Delete(p)
			p.shell("rm -r /var/lib/cni/cnibox " + resultsDir + "/demo-dead-eth0")
		},
		says: "cnictl del demo --id dead", remedy: func(p *clinic) { p.must("del", "demo", "--id", "dead") }},
	{code: "del-not-ended", works: reachesOutside, plant: func(p *clinic) {
		web := p.pods["web"]
		p.shell(`cd /opt/cni/bin; echo '{"cniVersion": "1.0.0", "name": "demo", "type": "portmap"}' |
			CNI_COMMAND=DEL CNI_CONTAINERID=web CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin CNI_NETNS=` + web.Path() + ` ./portmap`)
		p.shell("nft flush ruleset") // what is missing of it is of the DEL, for all that is known
		netlab.Until(p, "the DEL is given up", func() bool { return p.examine().find("del-not-ended") != nil })
	}, remedy: func(p *clinic) {
		p.must("del", "demo", "--id", "web", "--ifname", "eth0")
		p.must("add", "demo", p.pods["web"].Path(), "--id", "web")
	}, says: "cnictl del demo --id web --ifname eth0"},
	{code: "rules-gone", works: reachesOutside, plant: shell("nft flush ruleset")},
}

// TestDoctorLeftAlone: doctor says what is other than it was made of a container that is to be left alone, and has nothing put back of it. It counts
// where others must not be harmed: its network is given no other subnet.
func TestDoctorLeftAlone(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web")
	p.must("repair", "--leave", "web")
	p.write("/etc/cni/net.d/30-other.conflist", strings.NewReplacer(`"demo"`, `"other"`, "demo0", "other0").Replace(demo))
	p.shell("nft flush ruleset; ip link set dev $(ip -o link show master demo0 | grep -o 'veth[0-9a-f]*') nomaster")
	p.examine("--fix")
	e := p.examine()
	if e.find("container-changed") == nil || e.find("rules-gone") != nil || e.find("bridge-port-lost") != nil || e.find("attachment-broken") != nil {
		t.Errorf("found %+v", e.Findings)
	}
	overlaps := e.find("subnets-overlap")
	if len(overlaps) == 0 || slices.ContainsFunc(overlaps, func(f doctor.Finding) bool { return strings.Contains(f.Remedy, "10-demo") }) {
		t.Errorf("found %+v", overlaps)
	}
	if ports := p.host.MustRun(t, "ip", "-o", "link", "show", "master", "demo0"); ports != "" {
		t.Errorf("put back: %s", ports)
	}
	p.must("repair", "--leave=false", "web")
	if e := p.examine(); e.find("bridge-port-lost") == nil || e.find("rules-gone") == nil {
		t.Errorf("after it was taken back: found %+v", e.Findings)
	}
}

// TestDoctorInside finds what only CHECK notices, inside of a container that is to be repaired there, too.
func TestDoctorInside(t *testing.T) {
	t.Parallel()
	p := newClinic(t, strings.Replace(demo, `"name"`, `"repair": "all", "name"`, 1))
	p.admit("web")
	p.pods["web"].MustRun(t, "ip", "route", "delete", "default")
	e := p.examine()
	if codes := e.codes(); !slices.Equal(codes, []string{"attachment-broken"}) {
		t.Fatalf("found %+v", e.Findings)
	}
	p.host.MustRun(t, "env", "PATH="+p.path(), "sh", "-ec", e.Findings[0].Remedy)
	if e := p.examine(); !e.Healthy() || reachesOutside(p, netlab.Patience) != nil {
		t.Errorf("after the remedy: %+v", e.Findings)
	}
}

// TestDoctorContainersOwn says what containers have changed inside, once for a network, and takes it for no fault.
func TestDoctorContainersOwn(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web", "db")
	p.pods["web"].MustRun(t, "ip", "route", "delete", "default")
	p.pods["db"].MustRun(t, "ip", "route", "delete", "default")
	e := p.examine()
	if changed := e.find("container-changed"); !e.Healthy() || len(changed) != 1 || !strings.Contains(changed[0].Summary, "web/eth0: bridge: ") || !strings.Contains(changed[0].Summary, "db/eth0: bridge: ") {
		t.Errorf("%+v", e.Findings)
	}
}

// TestDoctorLeftovers says what gc would free, which is no fault.
func TestDoctorLeftovers(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web", "dead")
	p.pods["dead"].Delete(t)
	p.shell(age)
	e := p.examine()
	left := e.find("leftovers")
	if !e.Healthy() || len(left) != 1 || left[0].Summary != "gc would free 1 thing of network demo" {
		t.Fatalf("found %+v", e.Findings)
	}
	p.host.MustRun(t, "env", "PATH="+p.path(), "sh", "-ec", left[0].Remedy)
	if left := p.examine().find("leftovers"); left != nil {
		t.Errorf("after the remedy: %+v", left)
	}
}
