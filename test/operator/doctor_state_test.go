package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// small is the network demo with ten addresses.
var small = strings.Replace(demo, `{"subnet": "10.88.0.0/24"}`, `{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.2", "rangeEnd": "10.88.0.11"}`, 1)

// age makes all that was attached some minutes old: gc spares what is younger than one.
const age = `touch -d "5 minutes ago" /var/lib/cni/networks/demo/*; touch -d "4 minutes ago" ` + resultsDir + "/*"

// alone is a network on a segment of the host.
const alone = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "macvlan", "master": "lan0"}]}`

// faultsOfState are those of what is written down, and of what is left over.
var faultsOfState = []fault{
	{code: "state-read-only", plant: shell("mount -o remount,ro /var/lib/cni"), works: adds},
	{code: "state-full", plant: shell("mount -o remount,size=64k /var/lib/cni; dd if=/dev/zero of=/var/lib/cni/waste bs=1k 2>/dev/null || :"), works: adds, says: "du -xah /var/lib/cni", remedy: shell("rm /var/lib/cni/waste")},
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
			p.shell("rm " + resultsDir + "/demo-dead-eth0")
		},
		says: "cnictl del demo --id dead", remedy: func(p *clinic) { p.must("del", "demo", "--id", "dead") }},
	{code: "rules-gone", works: reachesOutside, plant: shell("nft flush ruleset")},
}

// TestDoctorDeep finds what only CHECK notices, and only where it is asked to.
func TestDoctorDeep(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web")
	p.pods["web"].MustRun(t, "ip", "route", "delete", "default")
	if e := p.examine(); !e.Healthy() {
		t.Errorf("without --deep: %+v", e.Findings)
	}
	e := p.examine("--deep")
	if codes := e.codes(); !slices.Equal(codes, []string{"attachment-broken"}) {
		t.Fatalf("found %+v", e.Findings)
	}
	p.host.MustRun(t, "env", "PATH="+p.path(), "sh", "-ec", e.Findings[0].Remedy)
	if e := p.examine("--deep"); !e.Healthy() || reachesOutside(p, timeout) != nil {
		t.Errorf("after the remedy: %+v", e.Findings)
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
