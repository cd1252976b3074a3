package operator

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/test/netlab"
)

var long = flag.Bool("long", false, "20 pods of a node that the doctor may not harm, rather than 6")

// many returns the pods of a node for which nothing may be worse after a remedy.
func many() []string {
	names := []string{"web", "db", "cache", "queue", "mail", "search"}
	for i := len(names); *long && i < 20; i++ {
		names = append(names, fmt.Sprint("pod", i))
	}
	return names
}

// accident is something that happens to a node with pods that run.
type accident struct {
	name   string
	happen func(p *clinic)
	finds  string // a code that doctor has to find then
	never  string // a code that it must not find
	prints string // what the remedy of the first has to say
}

var accidents = []accident{
	{name: "the bridge is edited in the network's file, and a container comes", never: "bridge-port-lost", happen: func(p *clinic) {
		p.shell(`sed -i 's/"demo0"/"demo1"/' /etc/cni/net.d/10-demo.conflist`)
		p.admit("late")
	}},
	{name: "an earlier file of the same name has another bridge", finds: "network-name-twice", never: "bridge-port-lost", happen: func(p *clinic) {
		p.shell(`cd /etc/cni/net.d; sed 's/"demo0"/"demo1"/; s/10.88/10.89/; s/fd00:88/fd00:89/' 10-demo.conflist >05-demo.conflist`)
		p.admit("late")
	}},
	{name: "the subnet is edited", finds: "bridge-other-subnet", happen: shell(`sed -i 's/10.88.0.0/10.89.0.0/' /etc/cni/net.d/10-demo.conflist`)},
	{name: "a second network has the bridge, and another subnet", finds: "bridge-other-subnet", happen: func(p *clinic) {
		p.write("/etc/cni/net.d/20-other.conflist", strings.Replace(other, "other0", "demo0", 1))
	}},
	{name: "the network's file is removed", happen: shell("rm /etc/cni/net.d/10-demo.conflist")},
	{name: "a host end is not in the bridge", finds: "bridge-port-lost", happen: shell("ip link set $(ls /sys/class/net/demo0/brif | head -n 1) nomaster")},
	{name: "the bridge is down", finds: "bridge-down", happen: shell("ip link set demo0 down")},
	{name: "the gateway's addresses are gone", finds: "gateway-gone", happen: shell("ip address flush dev demo0 scope global")},
	{name: "a second network with containers has the subnet", finds: "subnets-overlap", prints: " containers of network demo first", happen: func(p *clinic) {
		p.shell(`cd /etc/cni/net.d; sed 's/"demo"/"again"/; s/"demo0"/"again0"/' 10-demo.conflist >05-again.conflist`)
	}},
	{name: "the bridge has an address of the administrator, and a port that is no container's", finds: "bridge-other-subnet", prints: "# lan0 is in demo0, and no container's",
		happen: shell("ip link add lan0 up type veth peer name lan1; ip link set lan1 up; ip link set lan0 master demo0; ip address add 192.168.7.1/24 dev demo0")},
	{name: "the bridge has an address by which a default route leaves", finds: "bridge-other-subnet", prints: "# a default route of the host leaves by demo0",
		happen: shell("ip address add 192.168.7.1/24 dev demo0; ip route add default via 192.168.7.254 dev demo0 metric 900")},
	{name: "IPv6 forwarding is off, and the host has its router from advertisements", finds: "forwarding-off", prints: "accept_ra=2\nsysctl -w net.ipv6.conf.all.forwarding=1",
		happen: shell("sysctl -qw net.ipv6.conf.all.forwarding=0; ip link add lan0 up type veth peer name lan1; ip link set lan1 up; sysctl -qw net.ipv6.conf.lan0.accept_ra=1; ip route add default via fe80::1 dev lan0 proto ra metric 2048")},
	{name: "the packet filter is flushed", finds: "rules-gone", happen: shell("nft flush ruleset")},
	{name: "forwarding is off", finds: "forwarding-off", happen: shell("sysctl -qw net.ipv4.ip_forward=0")},
	{name: "the leases are removed", finds: "lease-lost", happen: removeLeases},
	{name: "the leases are removed, and a container gets an address for the second time", finds: "address-twice", happen: func(p *clinic) {
		removeLeases(p)
		p.admit("late")
		p.age()
	}},
}

func removeLeases(p *clinic) {
	p.age() // a young attachment's ADD may be under way
	p.shell("rm -r /var/lib/cni/networks/demo")
}

// TestDoctorHarmsNobody has accidents happen, and then does all that the doctor would do, and all that it prints. Whoever could be reached before
// still can.
func TestDoctorHarmsNobody(t *testing.T) {
	t.Parallel()
	for i, a := range accidents {
		if netlab.LeftOut(t, i, 3) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			p := newClinic(t, demo)
			p.admit(many()...)
			a.happen(p)
			reached := p.reached()
			e := p.examine()
			if codes := e.codes(); a.finds != "" && !slices.Contains(codes, a.finds) || a.never != "" && slices.Contains(codes, a.never) {
				t.Errorf("found %v, want %q and not %q\n%+v", codes, a.finds, a.never, e.Findings)
			}
			if says := func(f doctor.Finding) bool { return f.Code == a.finds && strings.Contains(f.Remedy, a.prints) }; a.prints != "" && !slices.ContainsFunc(e.Findings, says) {
				t.Errorf("no remedy of %s says %q\n%+v", a.finds, a.prints, e.Findings)
			}
			p.examine("--fix")
			p.wantReached("doctor --fix", reached)
			for _, f := range p.examine().Findings {
				p.obey(f)
				p.wantReached(f.Remedy, reached)
			}
			t.Logf("reached before %d, after %d; found %v", len(reached), len(p.reached()), e.codes())
		})
	}
}

// obey does what a finding says, as far as commands do.
func (p *clinic) obey(f doctor.Finding) {
	if out, err := p.host.Output(p.command("sh", "-ec", f.Remedy)); err != nil {
		p.Logf("%s: %v\n%s", f.Remedy, err, out)
	}
}

// reached returns the pods that reach their gateway. Of two that have one address neither counts.
func (p *clinic) reached() (names []string) {
	for name := range p.pods {
		isTwice := false
		for other, address := range p.address {
			isTwice = isTwice || other != name && address == p.address[name]
		}
		if !isTwice && p.reachesGateway(name, silence) == nil {
			names = append(names, name)
		}
	}
	return names
}

func (p *clinic) reachesGateway(name string, wait time.Duration) error {
	address := p.address[name]
	return p.pods[name].Ping(address[:strings.LastIndex(address, ".")]+".1", wait)
}

func (p *clinic) wantReached(after string, before []string) {
	p.Helper()
	for _, name := range before {
		if err := p.reachesGateway(name, netlab.Patience); err != nil {
			p.Errorf("after %q %s does not reach its gateway any more: %v", after, name, err)
		}
	}
}

// TestDoctorLostLeases finds that containers run without leases, and says what brings these back. show marks them.
func TestDoctorLostLeases(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web", "db")
	removeLeases(p)
	e := p.examine("lease-lost", "address-twice")
	if codes := e.codes(); !slices.Equal(codes, []string{"lease-lost"}) {
		t.Fatalf("found %v", codes)
	}
	if printed := p.must("show"); strings.Count(printed, "alive, no lease") != 2 {
		t.Errorf("show does not mark both:\n%s", printed)
	}
	p.obey(e.Findings[0])
	if e := p.examine(); !e.Healthy() {
		t.Errorf("after %s: %+v", e.Findings[0].Remedy, e.Findings)
	}
	p.admit("late")
	if p.address["late"] == p.address["web"] || p.address["late"] == p.address["db"] {
		t.Errorf("%s is given a second time", p.address["late"])
	}
}

// TestDoctorAddressTwice finds two containers with one address, and says which of them to start again. show marks both.
func TestDoctorAddressTwice(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web")
	removeLeases(p)
	p.admit("late")
	p.age()
	if p.address["late"] != p.address["web"] {
		t.Fatalf("%s and %s: not twice", p.address["late"], p.address["web"])
	}
	e := p.examine("lease-lost", "address-twice")
	if codes := e.codes(); !slices.Equal(codes, []string{"address-twice"}) || !strings.Contains(e.Findings[0].Remedy, "demo/web/eth0 again") {
		t.Errorf("found %+v", e.Findings)
	}
	if printed := p.must("show"); strings.Count(printed, "alive, address twice") != 2 || strings.Count(printed, "no lease") != 1 {
		t.Errorf("show does not mark them:\n%s", printed)
	}
}

// TestDoctorGatewayElsewhere takes no gateway from a link that has it by now, and says which that is.
func TestDoctorGatewayElsewhere(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web")
	p.shell("ip address flush dev demo0 scope global; ip link add lan0 up type bridge; ip address add 10.88.0.1/24 dev lan0")
	gone := p.examine("gateway-gone").find("gateway-gone")
	if len(gone) != 1 || gone[0].Fixable || !strings.HasPrefix(gone[0].Remedy, "# link lan0 would be in the way of 10.88.0.1/24") {
		t.Errorf("found %+v", gone)
	}
}

// TestDoctorDeleting takes no lease for lost that a DEL has given back which has not ended.
func TestDoctorDeleting(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web")
	p.age()
	p.host.Feed(p, `{"cniVersion": "1.1.0", "name": "demo", "type": "portmap"}`, "env", "CNI_COMMAND=DEL", "CNI_CONTAINERID=web", "CNI_IFNAME=eth0", "CNI_PATH="+netlab.PluginDir,
		"CNI_NETNS="+p.pods["web"].Path(), netlab.PluginDir+"/portmap")
	p.shell("rm -r /var/lib/cni/networks/demo")
	if e := p.examine("lease-lost"); !e.Healthy() {
		t.Errorf("found %+v", e.Findings)
	}
}

// TestDoctorTwiceOfPtp finds an address that two networks of ptp have given: the host has one route for both. On links that lead nowhere an address
// may be there as often as anybody likes.
func TestDoctorTwiceOfPtp(t *testing.T) {
	t.Parallel()
	p := newClinic(t, direct)
	p.write("/etc/cni/net.d/20-other.conflist", strings.Replace(direct, `"demo"`, `"other"`, 1))
	p.admit("web")
	db := p.host.NewPod(t, "db")
	p.must("add", "other", db.Path(), "--id", "db")
	if codes := p.examine("address-twice").codes(); !slices.Equal(codes, []string{"address-twice"}) {
		t.Errorf("found %v", codes)
	}
}

// TestDoctorBridgeOfLAN leaves a bridge to its manager that the host has for more than containers, and has nobody send its packets through the
// packet filter.
func TestDoctorBridgeOfLAN(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web")
	p.shell(`ip link add lan0 up type veth peer name lan1; ip link set lan1 up; ip link set lan0 master demo0; iptables-nft -t nat -N KUBE-SERVICES
		[ ! -e /proc/sys/net/bridge ] || sysctl -qw net.bridge.bridge-nf-call-iptables=0`)
	runs(p, "systemd-networkd")
	p.write("/etc/systemd/network/30-all.network", "[Match]\nName=*\n\n[Network]\nDHCP=yes\n")
	e := p.examine("networkd-takes-links", "bridge-nf-off")
	for _, f := range e.Findings {
		if f.Code == "networkd-takes-links" && strings.Contains(f.Remedy, "demo0") || f.Code == "bridge-nf-off" && !strings.HasPrefix(f.Remedy, "# lan0 is in demo0") {
			t.Errorf("the remedy of %s is\n%s", f.Code, f.Remedy)
		}
	}
	if len(e.Findings) != 2 {
		t.Errorf("found %+v", e.Findings)
	}
}
