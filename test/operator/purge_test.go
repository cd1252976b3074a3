package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// purged are networks of many kinds, with every backend, that all leave something on the node.
var purged = []string{
	demo,
	`{"cniVersion": "1.1.0", "name": "wall", "plugins": [
	  {"type": "bridge", "bridge": "wall0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", "macspoofchk": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}},
	  {"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}, {"type": "firewall", "backend": "iptables", "ingressPolicy": "isolated"},
	  {"type": "bandwidth", "ingressRate": 8000000, "ingressBurst": 8000000, "egressRate": 8000000, "egressBurst": 8000000}]}`,
	`{"cniVersion": "1.1.0", "name": "forward", "plugins": [
	  {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "/run/leases", "subnet": "10.90.0.0/24"}}, {"type": "firewall", "backend": "nftables"}]}`,
	`{"cniVersion": "1.1.0", "name": "card", "plugins": [{"type": "host-device", "device": "eth1"}, {"type": "tuning", "mtu": 1400}]}`,
	`{"cniVersion": "1.1.0", "name": "lan", "plugins": [{"type": "macvlan", "master": "uplink0",
	  "ipam": {"type": "host-local", "ranges": [[{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100", "gateway": "192.0.2.254"}]]}}]}`,
	`{"cniVersion": "1.0.0", "name": "overlay", "plugins": [{"type": "flannel", "delegate": {"isDefaultGateway": true}}]}`,
	`{"cniVersion": "1.0.0", "name": "old", "plugins": [
	  {"type": "bridge", "bridge": "old0", "isGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": {"type": "host-local", "subnet": "10.91.0.0/24"}},
	  {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall"},
	  {"type": "bandwidth", "ingressRate": 8000000, "ingressBurst": 8000000, "egressRate": 8000000, "egressBurst": 8000000}, {"type": "tuning", "mac": "02:00:00:00:00:07"}]}`,
	`{"cniVersion": "1.0.0", "name": "older", "plugins": [
	  {"type": "bridge", "bridge": "older0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "ipam": {"type": "host-local", "subnet": "10.92.0.0/24"}},
	  {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}]}`,
}

// ofPrograms is what programs that were run make for themselves, and what purge leaves and names.
var ofPrograms = []string{"file /run/xtables.lock", "sysctl "}

// newPurgeable returns a node with these networks on which nothing was attached yet, and what attaches a pod to each.
func newPurgeable(t *testing.T) (o *operator, attachAll func(prefix string) []*netlab.Pod) {
	t.Helper()
	o = newOperator(t)
	var names []string
	for i, list := range purged {
		var network struct{ Name string }
		if err := json.Unmarshal([]byte(list), &network); err != nil {
			t.Fatal(err)
		}
		names = append(names, network.Name)
		o.host.Feed(t, list, "sh", "-c", fmt.Sprintf("cat >/etc/cni/net.d/%d-%s.conflist", 10+i, network.Name))
	}
	o.host.Feed(t, "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", "sh", "-c", "mkdir /run/flannel; cat >/run/flannel/subnet.env")
	return o, func(prefix string) (pods []*netlab.Pod) {
		for i, network := range names {
			pod := o.host.NewPod(t, prefix+"-"+network)
			args := []string{"add", network, pod.Path(), "--id", pod.Name()}
			switch network {
			case "demo", "wall":
				args = append(args, "-p", fmt.Sprintf("%d:80", 8000+i))
			case "old", "older":
				args = append(args, "-p", fmt.Sprintf("%d:80", 8000+i), "--bin-dir", netlab.Reference(t))
			case "card":
				o.host.MustRun(t, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "wire1")
			}
			o.must(args...)
			pods = append(pods, pod)
		}
		return pods
	}
}

func end(t *testing.T, o *operator, pods []*netlab.Pod) {
	t.Helper()
	for _, pod := range pods {
		pod.Delete(t)
	}
	o.host.MustRun(t, "sh", "-ec", `touch -d "5 minutes ago" /var/lib/cni/networks/*/* /run/leases/*/* /run/cnibox/host-device/*; `+ageResults)
}

// TestPurge takes a node back to what it was.
func TestPurge(t *testing.T) {
	t.Parallel()
	o, attachAll := newPurgeable(t)
	fresh := o.host.Snapshot(t)
	if printed := o.must("purge"); !strings.Contains(printed, "nothing to remove") {
		t.Errorf("on a fresh node:\n%s", printed)
	}
	pods := attachAll("one")
	o.host.MustRun(t, "sh", "-ec", `ip link add demo0.100 type veth peer name vethgate; ip link set vethgate master demo0 alias "port of demo0.100"`)
	used := o.host.Snapshot(t)
	code, printed := o.cnictl("purge", "--apply")
	if code != 1 {
		t.Errorf("with containers: exit code %d", code)
	}
	if strings.Contains(printed, "no attachment that is known") {
		t.Errorf("all attachments are known:\n%s", printed)
	}
	for _, network := range []string{"demo", "wall", "forward", "card", "lan", "overlay", "old", "older"} {
		if name := network + "/one-" + network + "/eth0"; !strings.Contains(printed, name) {
			t.Errorf("it does not name %s:\n%s", name, printed)
		}
	}
	if diff := used.Diff(o.host.Snapshot(t), ofPrograms...); diff != "" {
		t.Errorf("what is refused changes:\n%s", diff)
	}
	end(t, o, pods)
	o.host.MustRun(t, "sh", "-c", "echo number >/var/lib/cni/etcd-host")
	left := o.host.Snapshot(t)
	printed = o.must("purge", "--bin-dir", netlab.PluginDir)
	for _, part := range []string{"would go", "attachment demo/one-demo/eth0", "bridge demo0", "link demo0.100", "bridge cni0", "nftables table inet cnibox", "nftables table ip cni_hostport",
		"CNI-HOSTPORT-DNAT", "directory /var/lib/cni/networks/demo", "directory /run/leases/forward", "sysctl net.ipv4.ip_forward=1", "nothing is removed without --apply"} {
		if !strings.Contains(printed, part) {
			t.Errorf("it does not say %q:\n%s", part, printed)
		}
	}
	if diff := left.Diff(o.host.Snapshot(t), ofPrograms...); diff != "" {
		t.Errorf("without --apply it changes:\n%s", diff)
	}
	printed = o.must("purge", "--apply")
	if !strings.Contains(printed, "cnictl uninstall --dir "+netlab.PluginDir) || !strings.Contains(printed, "rm /var/lib/cni/etcd-host") {
		t.Errorf("it does not say what stays:\n%s", printed)
	}
	if diff := fresh.Diff(o.host.Snapshot(t), append(ofPrograms, "file /run/leases ", "file /var/lib/cni/etcd-host ")...); diff != "" {
		t.Errorf("left by purge:\n%s\nwhich said:\n%s", diff, printed)
	}
	if printed := o.must("purge", "--apply"); !strings.Contains(printed, "sysctl net.ipv4.ip_forward=1") {
		t.Errorf("again:\n%s", printed)
	}
	for _, pod := range attachAll("two")[:3] {
		network := strings.TrimPrefix(pod.Name(), "two-")
		o.must("check", network, pod.Path(), "--id", pod.Name())
	}
}

// TestPurgeLeavesOthers: nothing goes that somebody else has made.
func TestPurgeLeavesOthers(t *testing.T) {
	t.Parallel()
	o, attachAll := newPurgeable(t)
	pods := attachAll("one")
	end(t, o, pods)
	o.host.MustRun(t, "sh", "-ec", `
		ip addr add 203.0.113.1/24 dev demo0
		ip link add mine type dummy 2>/dev/null || ip link add mine type bridge
		ip link set mine master wall0 2>/dev/null || ip link add mine2 type veth peer name mine3 && ip link set mine2 master wall0
		ip link add docker0 type bridge
		ip link add link cni0 name mine4 type macvlan
		iptables -A CNI-ADMIN -s 198.51.100.1 -j DROP
		iptables -A FORWARD -s 198.51.100.2 -j ACCEPT
		iptables -t nat -A POSTROUTING -s 198.51.100.0/24 -j MASQUERADE
		nft 'add table inet mine; add chain inet mine c { type filter hook input priority 0; }; add chain bridge nat mine'
		echo mine >/var/lib/cni/networks/wall/notes; mkdir -p /run/cni; echo mine >/run/cni/mine`)
	printed := o.must("purge", "--apply")
	for _, part := range []string{"bridge demo0", "203.0.113.1/24", "bridge wall0", "it has the port", "bridge cni0", "link mine4 is made on it", "chain CNI-ADMIN", "directory /var/lib/cni/networks/wall", "it has files that are no leases: notes"} {
		if !strings.Contains(printed, part) {
			t.Errorf("it does not say %q:\n%s", part, printed)
		}
	}
	for _, check := range []string{
		"ip link show demo0", "ip link show wall0", "ip link show docker0", "ip link show cni0", "iptables -C CNI-ADMIN -s 198.51.100.1 -j DROP", "iptables -C FORWARD -s 198.51.100.2 -j ACCEPT",
		"iptables -t nat -C POSTROUTING -s 198.51.100.0/24 -j MASQUERADE", "nft list chain inet mine c", "nft list chain bridge nat mine", "cat /var/lib/cni/networks/wall/notes /run/cni/mine",
		"! ip link show old0", "! nft list table inet cnibox", "! iptables -t nat -L CNI-HOSTPORT-DNAT", "! iptables -L CNI-FORWARD", "! iptables-save | grep -q 'CNI-[A-Z0-9]*-[A-Z0-9]'", "! ls /run/cnibox",
	} {
		if _, err := o.host.Output(o.host.Command("sh", "-c", check)); err != nil {
			t.Errorf("%s: %v\n%s", check, err, printed)
		}
	}
}

// TestPurgeRefusesWhatNobodyKnows: a container runs, and no file knows of it.
func TestPurgeRefusesWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	const nothing = "rm -r /var/lib/cni/results /var/lib/cni/networks; nft flush ruleset; for l in /sys/class/net/veth*; do ip link set ${l##*/} alias ''; done"
	ptp := `{"cniVersion": "1.1.0", "name": "demo", "plugins": [{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}}]}`
	for _, c := range []struct{ name, network, breaks, says string }{
		{"no result", demo, "rm -r /var/lib/cni/results", "attachment demo/web/eth0"},
		{"a torn result", demo, "truncate -s 100 /var/lib/cni/results/*", "attachment demo/web/eth0"},
		{"a torn result, and nothing else", demo, strings.Replace(nothing, "rm -r /var/lib/cni/results", "truncate -s 100 /var/lib/cni/results/*; rm -r", 1), "result /var/lib/cni/results/demo-web-eth0"},
		{"a cache that can't be read", demo, "rm -r /var/lib/cni/results; touch /var/lib/cni/results", "all attachments"},
		{"a lease that is being made", demo, "touch /var/lib/cni/networks/demo/10.88.0.77", "address 10.88.0.77"},
		{"nothing at all, on a bridge", demo, nothing, "its port veth"},
		{"nothing at all, on no bridge", ptp, nothing, "has the address 10.88.0.1/32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.host.Feed(t, c.network, "sh", "-c", "cat >/etc/cni/net.d/10-demo.conflist")
			o.attach("web")
			o.age()
			o.host.MustRun(t, "sh", "-ec", c.breaks)
			before := o.host.Snapshot(t)
			code, printed := o.cnictl("purge", "--apply")
			if code != 1 || !strings.Contains(printed, c.says) {
				t.Errorf("exit code %d\n%s", code, printed)
			}
			if diff := before.Diff(o.host.Snapshot(t), ofPrograms...); diff != "" {
				t.Errorf("what is refused changes:\n%s", diff)
			}
			var doc struct {
				Refused []struct{ What, Why string }
				Removed bool
			}
			code, printed = o.cnictl("purge", "--apply", "--json")
			if err := json.Unmarshal([]byte(printed[strings.Index(printed, "{"):]), &doc); err != nil || code != 1 || len(doc.Refused) == 0 || doc.Removed {
				t.Errorf("exit code %d, %v\n%s", code, err, printed)
			}
		})
	}
}

// TestPurgeRefusesWhatOthersUse: a container of another runtime runs, whose results, networks and leases are elsewhere.
func TestPurgeRefusesWhatOthersUse(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.Feed(t, `{"cniVersion": "1.0.0", "name": "far", "plugins": [
		{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "/run/far/leases", "subnet": "10.95.0.0/24"}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]}`, "sh", "-c", "mkdir /run/far; cat >/run/far/10-far.conflist")
	pod := o.host.NewPod(t, "far")
	o.must("add", "far", pod.Path(), "--id", pod.Name(), "-p", "8080:80", "--bin-dir", netlab.Reference(t), "--conf-dir", "/run/far", "--cache-dir", "/run/far/cache")
	before := o.host.Snapshot(t)
	code, printed := o.cnictl("purge", "--apply")
	if code != 1 || !strings.Contains(printed, "nothing is removed while something may be in use") || !strings.Contains(printed, "no cache has a result") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	gc := func(valid string) string {
		t.Helper()
		return o.host.Feed(t, valid, netlab.Cnictl(t), "gc", "--valid-from", "-", "--apply")
	}
	printed = gc("far/eth0") // as another runtime says
	if diff := before.Diff(o.host.Snapshot(t), ofPrograms...); diff != "" {
		t.Errorf("what is in use changes:\n%s\n%s", diff, printed)
	}
	pod.Delete(t)
	printed = gc("none")
	if said := o.must("purge", "--apply"); strings.Contains(said, "may be in use") {
		t.Errorf("what is gone is in purge's way: %s\ngc has said:\n%s", said, printed)
	}
	if left := o.host.MustRun(t, "sh", "-c", "nft list ruleset; iptables-save"); strings.Contains(left, "10.95.0.") || strings.Contains(left, "CNI-") {
		t.Errorf("left:\n%s\ngc has said:\n%s", left, printed)
	}
}
