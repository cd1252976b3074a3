package operator

import (
	"fmt"
	"os/exec"
	"syscall"

	"github.com/cnibox/cnibox/test/netlab"
)

// overlay is flannel's network.
const overlay = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [
  {"type": "flannel"}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`

// leased is a network whose addresses are from a DHCP server.
const leased = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "macvlan", "master": "` + netlab.UplinkName + `", "ipam": {"type": "dhcp"}}]}`

func writeSubnetEnv(p *clinic, subnet string) {
	p.Helper()
	p.write("/run/flannel/subnet.env", fmt.Sprintf("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=%s\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", subnet))
}

// flanneld is flannel's daemon as far as its file goes, which systemctl starts again.
func flanneld(p *clinic) {
	p.Helper()
	writeSubnetEnv(p, "10.244.3.1/24")
	p.write("/etc/systemd/system/flanneld.service", "")
	p.imitate("systemctl", `[ "$*" = "restart flanneld.service" ] && cp /run/flannel/whole /run/flannel/subnet.env`)
	p.shell("cp /run/flannel/subnet.env /run/flannel/whole")
}

// named is a network whose containers have names.
const named = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [
  {"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}},
  {"type": "dnsname", "domainName": "dns.podman"}]}`

// listedName is a network whose containers reach a name.
const listedName = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [
  {"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}},
  {"type": "egress", "allow": ["api.example.com:443"]}]}`

// answersNames starts an agent that answers for names, and waits until it does.
func answersNames(p *clinic) { answersAt(p, "10.88.0.1:53") }

func answersLists(p *clinic) { answersAt(p, "10.88.0.1:305") }

func answersAt(p *clinic, place string) {
	p.Helper()
	startAgent(p)
	netlab.Until(p, "the agent to answer", func() bool {
		_, err := p.host.Output(exec.Command("sh", "-c", "ss -lnu | grep -qw "+place))
		return err == nil
	})
}

// startAgent starts one, which harm kills.
func startAgent(p *clinic) {
	p.Helper()
	cmd := exec.Command(netlab.Cnictl(p), "agent", "--dns")
	if err := p.host.Start(cmd); err != nil {
		p.Fatal(err)
	}
	p.harm = func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
	p.Cleanup(p.harm)
	netlab.Until(p, "the agent to be ready", func() bool {
		code, _ := p.cnictl("agent", "status")
		return code == 0
	})
}

// runs starts something that does nothing and has the name of a daemon.
func runs(p *clinic, name string) {
	p.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		p.Fatal(err)
	}
	p.shell("cp " + sleep + " /run/doctor/bin/" + name)
	p.host.Background(p, exec.Command("/run/doctor/bin/"+name, "1d"))
}

// faultsOfDaemons are those of daemons that networks need, and of others that take links.
var faultsOfDaemons = []fault{
	{code: "dhcp-daemon-down", config: leased, pods: []string{},
		before: func(p *clinic) {
			daemon := p.host.StartDHCPDaemon(p)
			p.harm = func() { daemon.Stop(p, syscall.SIGKILL) }
		},
		plant: func(p *clinic) { p.harm() },
		says:  "setsid /opt/cni/bin/dhcp daemon ", remedy: func(p *clinic) { p.host.StartDHCPDaemon(p) }},
	{code: "names-unanswered", config: named, before: answersNames, plant: func(p *clinic) { p.harm() }, says: "run `cnictl agent --dns`", remedy: answersNames},
	{code: "names-unanswered", kind: "on lists", config: listedName, before: answersLists, plant: func(p *clinic) { p.harm() }, says: "run `cnictl agent --dns`", remedy: answersLists},
	{code: "names-answered-by-other", config: named, before: answersNames, plant: func(p *clinic) {
		p.harm()
		cmd := exec.Command("dnsmasq", "--keep-in-foreground", "--port=53", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--pid-file=", "--user=root")
		if err := p.host.Start(cmd); err != nil {
			p.Fatal(err)
		}
		other := func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
		p.Cleanup(other)
		netlab.Until(p, "dnsmasq to listen", func() bool {
			_, err := p.host.Output(exec.Command("sh", "-c", "ss -lnu | grep -q 0.0.0.0:53"))
			return err == nil
		})
		startAgent(p)
		p.harm = other
	}, says: "ss -lnup", remedy: func(p *clinic) {
		p.harm()
		netlab.Until(p, "the agent to take its place", func() bool {
			_, err := p.host.Output(exec.Command("sh", "-c", "ss -lnu | grep -q 10.88.0.1:53"))
			return err == nil
		})
	}},
	{code: "subnet-env-missing", config: overlay, pods: []string{}, before: flanneld, plant: shell("rm /run/flannel/subnet.env"), works: adds},
	{code: "subnet-env-torn", config: overlay, pods: []string{}, before: flanneld, plant: shell("truncate -s 40 /run/flannel/subnet.env"), works: adds},
	{code: "networkd-takes-links", before: func(p *clinic) {
		runs(p, "systemd-networkd")
		p.imitate("networkctl", `[ "$*" = reload ]`)
		p.write("/etc/systemd/network/20-lan.network", "[Match]\nType=ether\nName=en* eth*\n\n[Network]\nDHCP=yes\n")
	}, plant: func(p *clinic) {
		p.write("/etc/systemd/network/30-all.network", "# all of them\n[Match]\nName=*\n\n[Network]\nDHCP=yes\n")
	}},
	{code: "networkmanager-takes-links", before: func(p *clinic) {
		runs(p, "NetworkManager")
		p.imitate("systemctl", `[ "$*" = "reload NetworkManager" ]`)
		p.write("/etc/NetworkManager/conf.d/90-k8s.conf", "[keyfile]\nunmanaged-devices=interface-name:veth*;interface-name:demo0\n")
	}, plant: shell("rm /etc/NetworkManager/conf.d/90-k8s.conf")},
}
