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
