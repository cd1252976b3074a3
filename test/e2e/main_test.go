// Package e2e drives the built binaries the way runtimes do, through libcni
// and by plain exec, in nodes made of namespaces, and sends real packets.
//
// What any plugins can promise is a row of test/conformance. Here is what is said of these binaries alone: cnictl, what a call
// starts and in which order it works, the second process of DEL, the examples of the documentation. Packets on the way to a
// published port are test/firewall's, calls that are killed test/crash's.
//
//	go test ./test/e2e -run TestNothingIsLeft # CNIBOX_BIN_DIR names built binaries, or they are built first
package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// silence is how long a packet is waited for that must not arrive, or before it is sent again.
const silence = 1500 * time.Millisecond

// demo is the network of most tests: dual-stack, masqueraded, with a sysctl
// and published ports.
const demo = `{
  "cniVersion": "1.1.0",
  "name": "demo",
  "plugins": [
    {
      "type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}
    },
    {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}`

// storeFiles begin the lines of a snapshot that tell of host-local's own
// furniture: directories, locks, indexes and where it was last.
var storeFiles = []string{
	"file /var/lib/cni/networks drwx", "file /var/lib/cni/networks/.cnibox",
	"file /var/lib/cni/networks/lan drwx", "file /var/lib/cni/networks/lan/lock", "file /var/lib/cni/networks/lan/last_reserved_ip",
	"file /var/lib/cni/networks/demo drwx", "file /var/lib/cni/networks/demo/lock", "file /var/lib/cni/networks/demo/last_reserved_ip",
}

// node returns a host with all plugins and an outside.
func node(t *testing.T) (*netlab.Host, *netlab.Outside) {
	t.Helper()
	host := netlab.NewHost(t)
	host.InstallPlugins(t, "bridge", "ptp", "macvlan", "ipvlan", "vlan", "dummy", "host-device", "tap", "host-local", "static", "dhcp", "tuning", "portmap",
		"firewall", "egress", "bandwidth", "sbr", "vrf", "dnsname", "flannel", "contivk8s", "loopback", "chain")
	leaseSubnet(t, host)
	return host, host.NewOutside(t)
}

// container is an attached pod.
type container struct {
	*netlab.Pod
	result *types100.Result
	v4, v6 netip.Addr
}

// attach makes a pod and attaches it; the test fails if it can't be.
func attach(t *testing.T, host *netlab.Host, conflist, name string, caps map[string]any) *container {
	t.Helper()
	c := &container{Pod: host.NewPod(t, name)}
	result, err := host.AddList(conflist, c.RuntimeConf(caps))
	if err != nil {
		t.Fatalf("ADD %s: %v", name, err)
	}
	c.result = result
	c.v4, c.v6 = netlab.Addresses(result)
	return c
}

// detach calls DEL; the test fails if it does.
func detach(t *testing.T, host *netlab.Host, conflist string, c *container, caps map[string]any) {
	t.Helper()
	if err := host.DelList(conflist, c.RuntimeConf(caps)); err != nil {
		t.Fatalf("DEL %s: %v", c.Name(), err)
	}
}

// ports returns the capability argument for port maps written as
// [hostIP:]hostPort:containerPort/protocol, an IPv6 hostIP in brackets.
func ports(maps ...string) map[string]any {
	var list []map[string]any
	for _, m := range maps {
		entry := map[string]any{}
		rest, protocol, _ := strings.Cut(m, "/")
		entry["protocol"] = protocol
		if at := strings.LastIndex(rest, ":"); at >= 0 {
			var hostPort, containerPort int
			head := rest[:at]
			fmt.Sscan(rest[at+1:], &containerPort)
			if at := strings.LastIndex(head, ":"); at >= 0 {
				entry["hostIP"] = strings.Trim(head[:at], "[]")
				head = head[at+1:]
			}
			fmt.Sscan(head, &hostPort)
			entry["hostPort"], entry["containerPort"] = hostPort, containerPort
		}
		list = append(list, entry)
	}
	return map[string]any{"portMappings": list}
}

// at returns address:port for either family.
func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// warm attaches and detaches a first container: what all containers of a
// network share (the bridge, the nftables table, the lease directory) is there
// from then on.
func warm(t *testing.T, host *netlab.Host, conflist string) {
	t.Helper()
	c := attach(t, host, conflist, "warm", ports("1:1/tcp", "1:1/udp"))
	detach(t, host, conflist, c, ports("1:1/tcp", "1:1/udp"))
	c.Delete(t)
}

// asPod has a runtime say what one of Kubernetes says of a container.
func asPod(rt *libcni.RuntimeConf) *libcni.RuntimeConf {
	rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web"}}
	return rt
}

// needLinks skips a test of a network whose kind of links the kernel does not have.
func needLinks(t *testing.T, conflist string) {
	t.Helper()
	for _, feature := range []netlab.Feature{netlab.Dummy, netlab.IPVLAN, netlab.VLAN, netlab.VRF} {
		if regexp.MustCompile(`"type": *"` + feature.Name + `"`).MatchString(conflist) {
			netlab.Need(t, feature)
		}
	}
	if strings.Contains(conflist, `"bandwidth"`) {
		netlab.Need(t, netlab.Shaping)
	}
	if strings.Contains(conflist, `"vlan":`) || strings.Contains(conflist, `"vlanTrunk":`) {
		netlab.Need(t, netlab.BridgeVLANFiltering)
	}
}

// leaseSubnet gives the host the subnet that a flannel network is about, as flannel's daemon does.
func leaseSubnet(t *testing.T, host *netlab.Host) {
	t.Helper()
	host.Feed(t, "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
		"sh", "-c", "mkdir -p /run/flannel && cat >/run/flannel/subnet.env")
}

// spareDevice gives the host the device that a host-device network is about.
func spareDevice(t *testing.T, host *netlab.Host, conflist string) {
	t.Helper()
	if strings.Contains(conflist, `"host-device"`) {
		host.MustRun(t, "ip", "link", "add", "eth1", "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "wire1", "address", "02:00:00:00:00:02")
	}
}

// serveDHCP has a DHCP server outside, and the daemon on the host, for a network of the dhcp plugin.
func serveDHCP(t *testing.T, host *netlab.Host, outside *netlab.Outside, conflist string) {
	t.Helper()
	if strings.Contains(conflist, `"dhcp"`) {
		outside.ServeDNSMasq(t)
		host.StartDHCPDaemon(t)
	}
}

// serveEtcd starts etcd where the manual's example has its members.
func serveEtcd(t *testing.T, host *netlab.Host, conflist string) {
	t.Helper()
	if strings.Contains(conflist, `"etcd"`) {
		host.InstallPlugins(t, "etcd")
		host.ServeEtcd(t, "198.51.100.11", "198.51.100.12", "198.51.100.13")
	}
}

// serveContiv has the agent attach containers that contivk8s is called for.
func serveContiv(t *testing.T, host *netlab.Host, conflist string) {
	t.Helper()
	if !strings.Contains(conflist, `"contivk8s"`) {
		return
	}
	const network = `{"cniVersion": "1.0.0", "name": "agents", "plugins": [{"type": "bridge", "bridge": "agents0", "isDefaultGateway": true,
		"ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}}]}`
	host.MustRun(t, "ip", "link", "add", "agents0", "address", "02:00:00:00:02:00", "type", "bridge") // else it has a random address
	host.Feed(t, network, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/50-agents.conflist")
	host.Background(t, host.Command(netlab.Cnictl(t), "agent", "--contiv", contiv.DefaultSocket, "--network", "agents"))
	netlab.Until(t, "the agent to listen", func() bool {
		_, err := host.Output(host.Command("test", "-S", contiv.DefaultSocket))
		return err == nil
	})
}
