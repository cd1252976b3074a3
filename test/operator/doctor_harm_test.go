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

// accidents are what happens to a node with pods that run: by a script, and then some by a container that comes.
var accidents = []struct {
	name   string
	script string
	late   bool   // a container comes then
	finds  string // a code that doctor has to find then
	never  string // a code that it must not find
	prints string // what the remedy of the first has to say
}{
	{name: "the bridge is edited in the network's file, and a container comes", late: true, never: "bridge-port-lost", script: `sed -i 's/"demo0"/"demo1"/' 10-demo.conflist`},
	{name: "an earlier file of the same name has another bridge", late: true, finds: "network-name-twice", never: "bridge-port-lost",
		script: `sed 's/"demo0"/"demo1"/; s/10.88/10.89/; s/fd00:88/fd00:89/' 10-demo.conflist >05-demo.conflist`},
	{name: "the subnet is edited", finds: "bridge-other-subnet", script: "sed -i 's/10.88.0.0/10.89.0.0/' 10-demo.conflist"},
	{name: "a second network has the bridge, and another subnet", finds: "bridge-other-subnet",
		script: `echo '{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "bridge", "bridge": "demo0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}}]}' >20-other.conflist`},
	{name: "the network's file is removed", script: "rm 10-demo.conflist"},
	{name: "a host end is not in the bridge", finds: "bridge-port-lost", script: "ip link set $(ls /sys/class/net/demo0/brif | head -n 1) nomaster"},
	{name: "the bridge is down", finds: "bridge-down", script: "ip link set demo0 down"},
	{name: "the gateway's addresses are gone", finds: "gateway-gone", script: "ip address flush dev demo0 scope global"},
	{name: "a second network with containers has the subnet", finds: "subnets-overlap", prints: " containers of network demo first",
		script: `sed 's/"demo"/"again"/; s/"demo0"/"again0"/' 10-demo.conflist >05-again.conflist`},
	{name: "the bridge has an address of the administrator, and a port that is no container's", finds: "bridge-other-subnet", prints: "# lan0 is in demo0, and no container's",
		script: "ip link add lan0 up type veth peer name lan1; ip link set lan1 up; ip link set lan0 master demo0; ip address add 192.168.7.1/24 dev demo0"},
	{name: "the bridge has an address by which a default route leaves", finds: "bridge-other-subnet", prints: "# a default route of the host leaves by demo0",
		script: "ip address add 192.168.7.1/24 dev demo0; ip route add default via 192.168.7.254 dev demo0 metric 900"},
	{name: "IPv6 forwarding is off, and the host has its router from advertisements", finds: "forwarding-off", prints: "accept_ra=2\nsysctl -w net.ipv6.conf.all.forwarding=1",
		script: "sysctl -qw net.ipv6.conf.all.forwarding=0; ip link add lan0 up type veth peer name lan1; ip link set lan1 up; sysctl -qw net.ipv6.conf.lan0.accept_ra=1; ip route add default via fe80::1 dev lan0 proto ra metric 2048"},
	{name: "the packet filter is flushed", finds: "rules-gone", script: "nft flush ruleset"},
	{name: "forwarding is off", finds: "forwarding-off", script: "sysctl -qw net.ipv4.ip_forward=0"},
	{name: "the leases are removed", finds: "lease-lost", script: "rm -r /var/lib/cni/networks/demo"},
	{name: "the leases are removed, and a container gets an address for the second time", late: true, finds: "address-twice", script: "rm -r /var/lib/cni/networks/demo"},
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
			s := &script{operator: &operator{T: t}, variables: map[string]string{}}
			s.move()
			s.isolate()
			b := &bystanders{s, map[string]string{}}
			b.admit("web", "db", "cache", "queue", "mail", "search")
			for i := len(b.address); *long && i < 20; i++ {
				b.admit(fmt.Sprint("pod", i))
			}
			b.age() // a young attachment's ADD may be under way
			if out, err := b.onNode("cd /etc/cni/net.d; " + a.script); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if a.late {
				b.admit("late")
				b.age()
			}
			reached := b.reached()
			e := b.examine()
			if codes := e.codes(); a.finds != "" && !slices.Contains(codes, a.finds) || a.never != "" && slices.Contains(codes, a.never) {
				t.Errorf("found %v, want %q and not %q\n%+v", codes, a.finds, a.never, e.Findings)
			}
			if says := func(f doctor.Finding) bool { return f.Code == a.finds && strings.Contains(f.Remedy, a.prints) }; a.prints != "" && !slices.ContainsFunc(e.Findings, says) {
				t.Errorf("no remedy of %s says %q\n%+v", a.finds, a.prints, e.Findings)
			}
			b.examine("--fix")
			b.wantReached("doctor --fix", reached)
			for _, f := range b.examine().Findings {
				if out, err := b.onNode(f.Remedy); err != nil {
					t.Logf("%s: %v\n%s", f.Remedy, err, out)
				}
				b.wantReached(f.Remedy, reached)
			}
			t.Logf("reached before %d, after %d; found %v", len(reached), len(b.reached()), e.codes())
		})
	}
}

// bystanders are pods on a node.
type bystanders struct {
	*script
	address map[string]string
}

func (b *bystanders) admit(names ...string) {
	for _, name := range names {
		b.pods[name], b.address[name] = b.attach(name)
	}
}

// reached returns the pods that reach their gateway. Of two that have one address neither counts.
func (b *bystanders) reached() (names []string) {
	count := map[string]int{}
	for _, address := range b.address {
		count[address]++
	}
	for name, address := range b.address {
		if count[address] == 1 && b.reachesGateway(name, silence) == nil {
			names = append(names, name)
		}
	}
	return names
}

func (b *bystanders) reachesGateway(name string, wait time.Duration) error {
	address := b.address[name]
	return b.pods[name].Ping(address[:strings.LastIndex(address, ".")]+".1", wait)
}

func (b *bystanders) wantReached(after string, before []string) {
	b.Helper()
	for _, name := range before {
		if err := b.reachesGateway(name, netlab.Patience); err != nil {
			b.Errorf("after %q %s does not reach its gateway any more: %v", after, name, err)
		}
	}
}
