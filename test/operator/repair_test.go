package operator

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// patient is a node whose containers something is taken from.
type patient struct {
	*operator
	outside *netlab.Outside
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	host, outside := node(t)
	return &patient{operator: &operator{t, host}, outside: outside}
}

// container is one attachment, with a server that answers whoever connects for as long as the connection lasts.
type container struct {
	*netlab.Pod
	list    string
	address string
	end     string // the host end
	ifb     string
}

// add attaches a container.
func (p *patient) add(list, name string, capabilities map[string]any) *container {
	p.Helper()
	c := &container{Pod: p.host.NewPod(p, name), list: list}
	c.SetLoopbackUp(p)
	result, err := p.host.AddList(list, c.RuntimeConf(capabilities))
	if err != nil {
		p.Fatal(err)
	}
	v4, _ := netlab.Addresses(result)
	c.address = v4.String()
	for _, i := range result.Interfaces {
		switch {
		case strings.HasPrefix(i.Name, "veth"):
			c.end = i.Name
		case strings.HasPrefix(i.Name, "bwp"):
			c.ifb = i.Name
		}
	}
	return c
}

// serve answers each connection to port 80 of the container with what it sends.
func (c *container) serve(t *testing.T) {
	t.Helper()
	var listener net.Listener
	var err error
	c.Do(func() { listener, err = net.Listen("tcp", ":80") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
}

// dial connects from a namespace, and has an answer.
func dial(t *testing.T, from *netlab.Namespace, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := echo(conn); err != nil {
		t.Fatalf("connection to %s: %v", address, err)
	}
	return conn
}

// echo sends something over a connection, and waits until it comes back.
func echo(conn net.Conn) error {
	text := []byte("are you there\n")
	if err := conn.SetDeadline(time.Now().Add(2 * timeout)); err != nil {
		return err
	}
	if _, err := conn.Write(text); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(text)))
	return err
}

// ofRepair begin the lines of a snapshot that tell of what a repair has for itself.
var ofRepair = []string{"file /run/cnibox", "file /run/xtables.lock", "file /run/firewalld.log"}

// harm is something that is done to a network, and to one container's attachment.
type harm struct {
	name    string
	network string // plugins of its list
	host    string // a shell script on the host, in which END is the host end, IFB its ifb, and ADDRESS the container's
	inside  string // one in the container
	finds   string // what repair says is missing
	prepare string // a shell script on the host before ADD
}

const (
	ipamKeys   = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]], "routes": [{"dst": "10.99.0.0/16"}]}`
	listBridge = `{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, ` + ipamKeys + `}`
	listPorts  = `{"type": "portmap", "capabilities": {"portMappings": true}}`
	listUsual  = listBridge + "," + listPorts
	listPtp    = `{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]],
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},` + listPorts
	listOld = `{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", ` + ipamKeys + `},
		{"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}`
	listLimited = listUsual + `, {"type": "bandwidth", "ingressRate": 80000000, "ingressBurst": 8000000, "egressRate": 80000000, "egressBurst": 8000000}`
	listTuned   = listUsual + `, {"type": "tuning", "mtu": 1400, "txQLen": 500, "allmulti": true, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}`
	listSourced = listUsual + `, {"type": "sbr", "addSourceHints": true}`

	// A host that forwards nothing by itself, in the way of Docker.
	dropForwarded = "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP"
)

func listWith(keys string) string {
	return strings.Replace(listUsual, `"bridge",`, `"bridge", `+keys+`,`, 1)
}

func listGuarded(backend string) string {
	return strings.ReplaceAll(listUsual+`, {"type": "firewall", "backend": "BACKEND"}`, "BACKEND", backend)
}

func conflist(plugins string) string {
	return `{"cniVersion": "1.1.0", "name": "demo", "plugins": [` + plugins + `]}`
}

// harms are what repair mends whole: afterwards all is as before.
var harms = []harm{
	{name: "nftables are flushed", network: listUsual, host: "nft flush ruleset", finds: "table inet cnibox"},
	{name: "the table is deleted", network: listUsual, host: "nft delete table inet cnibox", finds: "table inet cnibox"},
	{name: "the chains are flushed", network: listUsual, host: "nft flush table inet cnibox", finds: "table inet cnibox"},
	{name: "elements are deleted", network: listUsual, host: "nft flush set inet cnibox masq_v1_10.88.0.0/24; nft flush map inet cnibox ports4_v1", finds: "10.88.0.2"},
	{name: "owners are deleted", network: listUsual, host: "nft flush map inet cnibox owners_v1", finds: "holds []"},
	{name: "route_localnet is off", network: listUsual, host: "echo 0 >/proc/sys/net/ipv4/conf/demo0/route_localnet", finds: "route_localnet"},
	{name: "rules of ports with conditions", network: strings.Replace(listUsual, `"portmap"`, `"portmap", "conditionsV4": ["ip", "saddr", "192.0.2.0/24"]`, 1),
		host: "nft flush chain inet cnibox options_v1", finds: "of its own"},
	{name: "ports with conditions", network: strings.Replace(listUsual, `"portmap"`, `"portmap", "conditionsV4": ["ip", "saddr", "192.0.2.0/24"]`, 1),
		host: "nft flush ruleset", finds: "table inet cnibox"},
	{name: "iptables are flushed", network: listOld, host: "iptables -t nat -F; ip6tables -t nat -F", finds: "lacks the rule"},
	{name: "iptables are deleted", network: listOld, host: "nft flush ruleset", finds: "lacks the rule"},
	{name: "the jump to the ports is deleted", network: listOld, host: "iptables -t nat -D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT", finds: "PREROUTING"},
	{name: "the guard of localhost is deleted", network: listOld, host: "iptables -t raw -F", finds: "127.0.0.1"},

	{name: "addresses of the container", network: listUsual, inside: "ip address flush dev eth0", finds: "lacks the address"},
	{name: "routes of the container", network: listUsual, inside: "ip route flush table main; ip -6 route flush table main", finds: "lacks the route"},
	{name: "the interface was down", network: listUsual, inside: "ip link set eth0 down; ip link set eth0 up", finds: "lacks the route"},
	{name: "the interface is down", network: listUsual, inside: "ip link set eth0 down", finds: "is down"},
	{name: "the interface's MAC address", network: listUsual, inside: "ip link set eth0 address 02:66:66:66:66:66", finds: "MAC address"},
	{name: "the host end's MAC address", network: listUsual, host: "ip link set END address 02:66:66:66:66:66", finds: "MAC address"},
	{name: "the host end is down", network: listUsual, host: "ip link set END down", finds: "is down"},
	{name: "leases", network: listUsual, host: "rm /var/lib/cni/networks/demo/10.88.0.2 /var/lib/cni/networks/demo/fd00*2", finds: "is not held"},

	{name: "a port out of the bridge", network: listUsual, host: "ip link set END nomaster", finds: "is not in bridge demo0"},
	{name: "a port in another bridge", network: listUsual, prepare: "ip link add other0 address 02:00:00:00:00:07 type bridge", host: "ip link set END master other0", finds: "is not in bridge demo0"},
	{name: "options of the port", network: listWith(`"hairpinMode": true, "portIsolation": true, "macspoofchk": true`),
		host: "ip link set END nomaster; nft flush table bridge cnibox", finds: "is not in bridge demo0"},
	{name: "hairpin mode that nobody wants", network: listUsual, host: "bridge link set dev END hairpin on", finds: "hairpin_mode"},
	{name: "the bridge is down", network: listUsual, host: "ip link set demo0 down", finds: "demo0 is down"},
	{name: "the bridge is deleted", network: listUsual, host: "ip link del demo0", finds: "demo0 is not there"},
	{name: "promiscMode", network: listWith(`"promiscMode": true`), host: "ip link set demo0 promisc off", finds: "promiscuous"},
	{name: "the gateway's addresses", network: listUsual, host: "ip address flush dev demo0", finds: "lacks the gateway's address"},
	{name: "forwarding", network: listUsual, host: "echo 0 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv6/conf/all/forwarding", finds: "ip_forward"},
	{name: "all of it", network: listUsual, host: "nft flush ruleset; ip link del demo0; echo 0 >/proc/sys/net/ipv4/ip_forward; rm /var/lib/cni/networks/demo/10*",
		inside: "ip address flush dev eth0; ip link set eth0 down", finds: "is not held"},

	{name: "ptp: addresses of the host end", network: listPtp, host: "ip address flush dev END", finds: "lacks the gateway's address"},
	{name: "ptp: the route to the container", network: listPtp, host: "ip route del ADDRESS; ip -6 route del fd00:88::2 dev END", finds: "does not route"},
	{name: "ptp: the host end is down", network: listPtp, host: "ip link set END down", finds: "is down"},
	{name: "ptp: addresses of the container", network: listPtp, inside: "ip address flush dev eth0", finds: "lacks the address"},
	{name: "ptp: routes of the container", network: listPtp, inside: "ip route flush table main; ip -6 route flush table main", finds: "lacks the route"},
	{name: "ptp: masquerading", network: listPtp, host: "nft flush ruleset", finds: "table inet cnibox"},

	{name: "firewall: nftables", network: listGuarded("nftables"), prepare: dropForwarded, host: "nft delete table inet cnibox-forward", finds: "table inet cnibox-forward"},
	{name: "firewall: what accepts marked packets", network: listGuarded("nftables"), prepare: dropForwarded, host: "iptables -F; ip6tables -F", finds: "CNIBOX-FORWARD"},
	{name: "firewall: iptables", network: listGuarded("iptables"), prepare: dropForwarded + "; iptables -N CNI-ADMIN; iptables -A CNI-ADMIN -d 10.88.0.0/24 -j ACCEPT", host: "iptables -F CNI-FORWARD; iptables -F FORWARD", finds: "lacks the rule"},
	{name: "firewall: policy", network: listUsual + `, {"type": "firewall", "ingressPolicy": "isolated"}`, prepare: dropForwarded,
		host: "nft delete table inet cnibox-forward; bridge link set dev END isolated off", finds: "table inet cnibox-forward"},

	{name: "bandwidth: what the host end sends", network: listLimited, host: "tc qdisc del dev END root", finds: "nothing limits"},
	{name: "bandwidth: another limit", network: listLimited, host: "tc qdisc replace dev END root handle 1: tbf rate 8mbit burst 100k latency 1s", finds: "bytes a second"},
	{name: "bandwidth: what the host end receives", network: listLimited, host: "tc qdisc del dev END ingress", finds: "is not sent through"},
	{name: "bandwidth: the filter", network: listLimited, host: "tc filter del dev END ingress", finds: "is not sent through"},
	{name: "bandwidth: the ifb's limit", network: listLimited, host: "tc qdisc del dev IFB root", finds: "nothing limits"},
	{name: "bandwidth: the ifb is down", network: listLimited, host: "ip link set IFB down", finds: "is down"},
	{name: "bandwidth: the ifb is deleted", network: listLimited, host: "ip link del IFB", finds: "is not sent through"},
	{name: "bandwidth: the port out of the bridge, and all qdiscs", network: listLimited, host: "ip link set END nomaster; tc qdisc del dev END root; tc qdisc del dev END ingress", finds: "nothing limits"},

	{name: "tuning", network: listTuned, inside: "ip link set eth0 mtu 1500 txqueuelen 100 allmulticast off; echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_filter", finds: "arp_filter"},

	{name: "sbr: rules", network: listSourced, inside: "ip rule del from ADDRESS; ip -6 rule del from fd00:88::2", finds: "no rule leads"},
	{name: "sbr: tables", network: listSourced, inside: `for t in $(ip rule | sed -n "s/.*from ADDRESS lookup \\([0-9]*\\).*/\\1/p"); do ip route flush table $t; done`, finds: "lacks the route"},
	{name: "sbr: the main table", network: listSourced, inside: "ip route flush table main", finds: "the main table has no route"},
	{name: "sbr: addresses", network: listSourced, inside: "ip address flush dev eth0", finds: "lacks the address"},

	{name: "chain", network: `{"type": "chain", "capabilities": {"portMappings": true}, "plugins": [` + listTuned + `]}`, host: "nft flush ruleset; ip link set END nomaster",
		inside: "ip address flush dev eth0; ip link set eth0 mtu 1500", finds: "chain: bridge: "},
	{name: "flannel", network: `{"type": "flannel", "delegate": {"bridge": "demo0", "isDefaultGateway": true}},` + listPorts,
		prepare: `mkdir /run/flannel; printf 'FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_SUBNET=10.88.0.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n' >/run/flannel/subnet.env`,
		host:    "nft flush ruleset; ip link set END nomaster", inside: "ip address flush dev eth0", finds: "flannel"},
}

func TestRepair(t *testing.T) {
	t.Parallel()
	for _, h := range harms {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			h.test(t)
		})
	}
}

func (h harm) test(t *testing.T) {
	p := newPatient(t)
	p.script(h.prepare)
	web, other := p.add(conflist(h.network), "web", port(8080, 80, "tcp")), p.add(conflist(h.network), "other", port(8081, 80, "tcp"))
	web.serve(t)
	other.serve(t)
	target := netlab.HostIPv4 + ":8080"
	if !strings.Contains(h.network, "portmap") {
		target = web.address + ":80"
		p.outside.AddRoute(t, web.address)
	}
	open := dial(t, &p.outside.Namespace, target)
	before, inside := p.host.Snapshot(t), web.Snapshot(t)
	names := strings.NewReplacer("END", web.end, "IFB", web.ifb, "ADDRESS", web.address)
	p.script(names.Replace(h.host))
	if h.inside != "" {
		web.MustRun(t, "sh", "-ec", names.Replace(h.inside))
	}
	harmed, harmedInside := p.host.Snapshot(t), web.Snapshot(t)
	code, printed := p.cnictl("repair", "--dry-run")
	if code != 1 || !strings.Contains(printed, h.finds) {
		t.Fatalf("dry run: exit code %d, want one that finds %q\n%s", code, h.finds, printed)
	}
	if diff := harmed.Diff(p.host.Snapshot(t)) + harmedInside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("the dry run has changed:\n%s", diff)
	}
	code, printed = p.cnictl("repair")
	t.Log(printed)
	if code != 0 || !strings.Contains(printed, "repaired") {
		t.Errorf("repair: exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), ofRepair...) + inside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("after the repair:\n%s\n%s", diff, printed)
	}
	if err := echo(open); err != nil {
		t.Errorf("the connection that was open: %v", err)
	}
	dial(t, &p.outside.Namespace, target)
	if code, printed := p.cnictl("repair"); code != 0 || !strings.Contains(printed, "2 attachments: 2 right") {
		t.Errorf("a second repair: exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), ofRepair...) + inside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("after the second repair:\n%s", diff)
	}
}

func (p *patient) script(text string) {
	p.Helper()
	if text != "" {
		p.host.MustRun(p, "sh", "-ec", text)
	}
}
