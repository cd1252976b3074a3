//go:build amd64

package crash

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// network is a network whose ADD and DEL are killed.
type network struct {
	name    string
	plugins string // of its conflist
	always  bool   // killed without -all too
	single  bool   // takes one container at a time
	needs   []netlab.Feature
	prepare func(testing.TB, *netlab.Host)
	device  string // commands of ip(8) that make on the node what goes with a container's namespace
	// shared matches what all attachments have in common, and an ADD that is killed may leave half made to the next one.
	shared *regexp.Regexp
}

const (
	ipam    = `"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
	bridge  = `{"type":"bridge","bridge":"lan0","isGateway":true,` + ipam + `}`
	portmap = `{"type":"portmap","capabilities":{"portMappings":true}}`
	tuning  = `{"type":"tuning","mtu":1400,"mac":"02:00:00:00:00:aa","promisc":true,"allmulti":true,"txQLen":77,"sysctl":{"net.ipv4.conf.IFNAME.arp_notify":"1","net.ipv4.conf.IFNAME.arp_filter":"1"}}`
	shaping = `{"type":"bandwidth","ingressRate":1000000,"ingressBurst":1000000,"egressRate":1000000,"egressBurst":1000000}`
	device  = "link add up0 address 02:00:00:00:00:01 type veth peer name up1\nlink set up0 up\nlink set up1 up\n"
)

var lan0 = regexp.MustCompile(`\blan0\b`)

var networks = []network{
	{name: "bridge", plugins: `{"type":"bridge","bridge":"lan0","isDefaultGateway":true,"ipMasq":true,"hairpinMode":true,` + ipam + `}`, shared: lan0, always: true},
	{name: "bridge by iptables", plugins: `{"type":"bridge","bridge":"lan0","isGateway":true,"ipMasq":true,"ipMasqBackend":"iptables",` + ipam + `}`, shared: lan0},
	// The VLAN's gateway has a port of the bridge, whose name is random.
	{name: "bridge with VLANs", shared: regexp.MustCompile(`\blan0\b|(link|ipv[46]) …:`), needs: []netlab.Feature{netlab.BridgeVLANFiltering, netlab.VLAN},
		plugins: `{"type":"bridge","bridge":"lan0","isGateway":true,"vlan":100,"preserveDefaultVlan":false,"vlanTrunk":[{"minID":10,"maxID":15},{"id":20}],` + ipam + `}`},
	{name: "ptp", plugins: `{"type":"ptp","ipMasq":true,` + ipam + `}`},
	{name: "macvlan", plugins: `{"type":"macvlan","master":"up0",` + ipam + `}`, device: device},
	{name: "ipvlan", plugins: `{"type":"ipvlan","master":"up0",` + ipam + `}`, device: device, needs: []netlab.Feature{netlab.IPVLAN}},
	{name: "vlan", plugins: `{"type":"vlan","master":"up0","vlanId":5,` + ipam + `}`, device: device, single: true, needs: []netlab.Feature{netlab.VLAN}},
	{name: "dummy", plugins: `{"type":"dummy",` + ipam + `}`, needs: []netlab.Feature{netlab.Dummy}},
	{name: "host-device", plugins: `{"type":"host-device","device":"up0",` + ipam + `}`, device: device, single: true},
	{name: "tap", plugins: `{"type":"tap",` + ipam + `}`},

	{name: "host-local", plugins: `{"type":"host-local",` + ipam + `}`, always: true},
	{name: "dhcp", plugins: `{"type":"macvlan","master":"uplink0","ipam":{"type":"dhcp"}}`, prepare: serveDHCP},

	{name: "portmap", plugins: bridge + "," + portmap, shared: lan0},
	{name: "portmap by iptables", plugins: bridge + `,{"type":"portmap","backend":"iptables","capabilities":{"portMappings":true}}`, shared: lan0},
	{name: "firewall", plugins: bridge + `,{"type":"firewall","ingressPolicy":"same-bridge"}`, shared: lan0},
	{name: "egress", plugins: `{"type":"bridge","bridge":"lan0","isDefaultGateway":true,` + ipam + `},{"type":"egress","allow":["192.0.2.0/24:80","10.88.0.0/24","api.example.com:443"]}`, shared: lan0, needs: []netlab.Feature{netlab.NFTables}},
	{name: "tuning", plugins: bridge + "," + tuning, shared: lan0},
	{name: "bandwidth", plugins: bridge + "," + shaping, shared: lan0, needs: []netlab.Feature{netlab.Shaping}},
	{name: "sbr", plugins: bridge + `,{"type":"sbr"}`, shared: lan0},
	{name: "sbr of any interface", plugins: `{"type":"` + standIn + `"},{"type":"sbr"}`},
	{name: "sbr with hints", plugins: `{"type":"` + standIn + `"},{"type":"sbr","addSourceHints":true}`},
	{name: "sbr with a table", plugins: `{"type":"` + standIn + `"},{"type":"sbr","table":5000}`},
	{name: "vrf", plugins: bridge + `,{"type":"vrf","vrfname":"red"}`, shared: lan0, needs: []netlab.Feature{netlab.VRF}},
	{name: "dnsname", plugins: bridge + `,{"type":"dnsname","domainName":"dns.podman"}`, shared: lan0},
	{name: "flannel", plugins: `{"type":"flannel","delegate":{"bridge":"lan0","isDefaultGateway":true}},` + portmap, shared: lan0, prepare: leaseSubnet},
	{name: "chain", shared: lan0, plugins: `{"type":"chain","capabilities":{"portMappings":true},"plugins":[` +
		bridge + "," + portmap + `,{"type":"firewall"},` + tuning + `]}`},
}

// leaseSubnet does what flannel's daemon does.
func leaseSubnet(t testing.TB, host *netlab.Host) {
	host.Feed(t, "FLANNEL_NETWORK=10.88.0.0/16\nFLANNEL_SUBNET=10.88.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n",
		"sh", "-c", "mkdir -p /run/flannel && cat >/run/flannel/subnet.env")
}

// serveDHCP starts a DHCP server and the daemon, which nobody kills.
func serveDHCP(t testing.TB, host *netlab.Host) {
	host.NewOutside(t).ServeDNSMasq(t)
	host.StartDHCPDaemon(t)
}

// standIn is the name of a plugin, played by this program, that makes an interface with routes of many kinds.
const standIn = "stand-in"

const madeInside = `link add eth0 address 02:00:00:00:00:01 type veth peer name peer0
link set peer0 up
addr add 10.47.0.2/24 dev eth0
addr add fd00:47::2/64 dev eth0 nodad
link set eth0 up
route add 10.60.0.0/16 via 10.47.0.1
route add default via 10.47.0.1 metric 50 mtu 1400
route add 10.80.0.0/16 via 172.31.0.1 dev eth0 onlink
route add default via fd00:47::1
route add fd00:61::/48 dev eth0 metric 7
`

// answer does what the stand-in does.
func answer() (exitCode int) {
	ip := exec.Command("nsenter", "--net="+os.Getenv("CNI_NETNS"), "ip", "-force", "-batch", "-")
	switch os.Getenv("CNI_COMMAND") {
	case "DEL":
		ip.Stdin = strings.NewReader("link del eth0\n")
		_ = ip.Run() // it or the namespace may be gone
	case "ADD":
		ip.Stdin = strings.NewReader(madeInside)
		if err := ip.Run(); err != nil {
			return 1
		}
		fmt.Printf(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":%q}],"ips":[{"interface":0,"address":"10.47.0.2/24",`+
			`"gateway":"10.47.0.1"},{"interface":0,"address":"fd00:47::2/64","gateway":"fd00:47::1"}]}`, os.Getenv("CNI_NETNS"))
	}
	return 0
}
