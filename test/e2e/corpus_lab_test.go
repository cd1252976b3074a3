package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// test attaches a container beside another one, and compares the node after its DEL with before its ADD.
func (n network) test(t *testing.T, list string) {
	host, outside := node(t)
	n.furnish(t, host, outside, list)
	pods := []*netlab.Pod{host.NewPod(t, "first"), host.NewPod(t, "second")}
	first := n.attach(t, host, list, pods[0], 33)
	if n.alone {
		n.detach(t, host, list, first)
	}
	host.Feed(t, n.onHost, "ip", "-batch", "-")
	outside.Feed(t, n.outside, "ip", "-batch", "-")
	before := host.Snapshot(t)
	second := n.attach(t, host, list, pods[1], 34)
	if err := host.ValidateList(list); err != nil {
		t.Errorf("VERSION: %v", err)
	}
	if err := host.CheckList(list, second.rt); err != nil && !strings.Contains(err.Error(), "does not support the CHECK command") {
		t.Errorf("CHECK: %v", err)
	}
	if err := host.StatusList(list); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	answered := n.ask(t, host, outside, list, first, second)
	t.Logf("answered: %s", strings.Join(answered, ", "))
	if (len(answered) == 0) != (n.silent != "") {
		t.Errorf("%d packets were answered, want some unless: %s", len(answered), n.silent)
	}
	n.detach(t, host, list, second)
	if left := ofCursor.ReplaceAllString(before.Diff(host.Snapshot(t)), ""); left != "" {
		t.Errorf("left by DEL:\n%s", left)
	}
	if !n.alone {
		n.detach(t, host, list, first)
	}
	for _, line := range host.Snapshot(t).Lines("") {
		if strings.Contains(line, first.ID) || strings.Contains(line, second.ID) {
			t.Errorf("still names a container: %s", line)
		}
	}
}

// ofCursor matches what host-local keeps to give the next address, and its index.
var ofCursor = regexp.MustCompile(`(?m)^[-+] file \S*/(last_reserved_ip\.\d|\.cnibox/\S+) .*\n`)

// attached is a container of a network of the corpus.
type attached struct {
	container
	rt *libcni.RuntimeConf
}

// attach calls ADD with all that runtimes have to tell plugins of a container; libcni passes on what a plugin says that it can take.
func (n network) attach(t *testing.T, host *netlab.Host, list string, pod *netlab.Pod, number int) attached {
	t.Helper()
	caps := ports(fmt.Sprintf("80%d:80/tcp", number))
	caps["bandwidth"] = map[string]any{"ingressRate": 80_000_000, "ingressBurst": 80_000_000, "egressRate": 80_000_000, "egressBurst": 80_000_000}
	caps["mac"] = fmt.Sprintf("02:00:00:00:00:%d", number)
	caps["aliases"] = map[string][]string{"web": {pod.Name()}}
	caps["deviceID"] = "0000:3d:00.1"
	if subnet := regexp.MustCompile(`"subnet": *"([0-9.]+\.)0/`).FindStringSubmatch(list); subnet != nil {
		caps["ips"] = []string{fmt.Sprint(subnet[1], number)}
	}
	a := attached{container{Pod: pod}, asPod(pod.RuntimeConf(caps))}
	a.rt.Args = append(a.rt.Args, [2]string{"NERDCTL_CNI_DHCP_HOSTNAME", pod.Name()})
	if list, _ := libcni.NetworkConfFromBytes([]byte(list)); list.Plugins[0].Network.Type == "loopback" && len(list.Plugins) == 1 {
		a.rt.IfName = "lo"
	}
	var err error
	if a.result, err = host.AddList(list, a.rt); err != nil {
		t.Fatalf("ADD: %v", err)
	}
	a.v4, a.v6 = netlab.Addresses(a.result)
	return a
}

func (n network) detach(t *testing.T, host *netlab.Host, list string, a attached) {
	t.Helper()
	if err := host.DelList(list, a.rt); err != nil {
		t.Errorf("DEL: %v", err)
	}
}

// furnish gives the host what a network expects to be there.
func (n network) furnish(t *testing.T, host *netlab.Host, outside *netlab.Outside, list string) {
	t.Helper()
	device := regexp.MustCompile(`"(?:master|device)": *"([^"]+)"`).FindStringSubmatch(list)
	switch {
	case device == nil:
	case strings.Contains(list, `"host-device"`):
		host.MustRun(t, "ip", "link", "add", device[1], "link", netlab.UplinkName, "type", "macvlan", "mode", "bridge")
	default:
		host.Feed(t, fmt.Sprintf("link set %[1]s down\nlink set %[1]s name %[2]s\naddress add %[3]s/64 dev %[2]s nodad\nlink set %[2]s up\nroute add default via %[4]s\nroute add default via %[5]s\n",
			netlab.UplinkName, device[1], netlab.HostIPv6, netlab.OutsideIPv4, netlab.OutsideIPv6), "ip", "-batch", "-")
	}
	for _, chain := range regexp.MustCompile(`"externalSetMarkChain": *"([^"]+)"`).FindAllStringSubmatch(list, -1) {
		for _, iptables := range []string{"iptables", "ip6tables"} { // as the kubelet does
			host.MustRun(t, iptables, "-t", "nat", "-N", chain[1])
			host.MustRun(t, iptables, "-t", "nat", "-A", chain[1], "-j", "MARK", "--or-mark", "0x4000")
			host.MustRun(t, iptables, "-t", "nat", "-A", "POSTROUTING", "-m", "mark", "--mark", "0x4000/0x4000", "-j", "MASQUERADE")
		}
	}
	if strings.Contains(list, `"firewalld"`) {
		firewalldtest.Start(t, host, "nftables")
	}
	for _, name := range regexp.MustCompile(`"buildkit-cni-([a-z-]+)"`).FindAllStringSubmatch(list, -1) {
		host.InstallPlugin(t, "buildkit-cni-"+name[1], netlab.Cnibox(t))
	}
	if n.standIn != "" {
		program := filepath.Join(t.TempDir(), n.standIn)
		if err := os.WriteFile(program, []byte("#!/bin/sh\nexec "+netlab.PluginDir+"/tuning\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		host.InstallPlugin(t, n.standIn, program)
	}
	serveDHCP(t, host, outside, list)
}

// ask sends packets to all who should answer the second container, and returns who that is.
func (n network) ask(t *testing.T, host *netlab.Host, outside *netlab.Outside, list string, first, second attached) (answered []string) {
	t.Helper()
	ping := func(from *netlab.Namespace, who string, address string) {
		t.Helper()
		if err := netlab.Await(func() error { return from.Ping(address, silence) }); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		answered = append(answered, who)
	}
	if n.silent != "" {
		return nil
	}
	if n.pinged {
		from := &host.Namespace
		if strings.Contains(list, `"macvlan"`) { // the host can't reach what is behind its own link
			from = &outside.Namespace
		}
		ping(from, "the container", second.v4.String())
		return answered
	}
	if n.answers != "" {
		ping(&second.Namespace, n.answers, n.answers)
		return answered
	}
	if len(second.result.IPs) == 0 { // a link alone: whoever is in the container brings the addresses
		for i, a := range []attached{first, second} {
			a.MustRun(t, "ip", "address", "add", fmt.Sprintf("198.51.100.%d/24", i+1), "dev", "eth0")
		}
		first.v4 = netip.MustParseAddr("198.51.100.1")
	}
	for _, address := range []netip.Addr{first.v4, first.v6} {
		if address.IsValid() && !n.alone {
			ping(&second.Namespace, "another container", address.String())
		}
	}
	hasGateway := false
	ofHost := host.MustRun(t, "ip", "-o", "address")
	for _, ip := range second.result.IPs {
		if ip.Gateway != nil && strings.Contains(ofHost, " "+ip.Gateway.String()+"/") {
			ping(&second.Namespace, "gateway", ip.Gateway.String())
			hasGateway = true
		}
	}
	for _, family := range []struct {
		flag                   string
		pod                    netip.Addr
		toOutside, fromOutside string
	}{{"-4", second.v4, netlab.OutsideIPv4, netlab.HostIPv4}, {"-6", second.v6, netlab.OutsideIPv6, netlab.HostIPv6}} {
		if second.MustRun(t, "ip", family.flag, "route", "show", "default") == "" {
			continue
		}
		if regexp.MustCompile(`"ipMasq": *true|"dhcp"`).MatchString(list) {
			ping(&second.Namespace, "outside", family.toOutside)
		}
		if hasGateway && strings.Contains(list, `"portMappings"`) {
			second.ServeTCP(t, netip.AddrPortFrom(family.pod, 80).String())
			if _, err := outside.DialTCP(netip.AddrPortFrom(netip.MustParseAddr(family.fromOutside), 8034).String(), netlab.Patience); err != nil {
				t.Errorf("the published port: %v", err)
			}
			answered = append(answered, "published port")
		}
	}
	return answered
}
