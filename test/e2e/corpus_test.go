package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/netlab"
)

// corpus is where the networks are that runtimes, orchestrators and manuals write.
const corpus = "../lint/testdata/good"

// network is what a test has to know of a network of the corpus, besides what its file says.
type network struct {
	fill    []string // texts, each before what its writer or its reader puts in its place
	chained bool     // the page shows a plugin without the one before it
	standIn string   // a plugin of somebody else at the end of the chain, which tuning stands in for
	alone   bool     // there can't be a second container
	onHost  string   // what ip does on the host, or outside, so that somebody answers
	outside string
	answers string // who answers, where it is not another container
	pinged  bool   // its routes are not those of its programs: it answers others
	silent  string // why no packet comes through
	refused string // how libcni or a plugin refuses it
	why     string
}

// networks are the networks of the corpus that can't be run as they are. A new file is run as it is, or has its row here.
var networks = map[string]network{
	"antrea.conflist":            {refused: `"antrea" in path`, why: "Antrea's own plugin"},
	"aws-eks.conflist":           {refused: `"aws-cni" in path`, why: "Amazon's own plugin"},
	"calico.conflist":            {refused: `"calico" in path`, why: "Calico's own plugin"},
	"calico-gke.conflist":        {refused: `"calico" in path`, why: "Calico's own plugin"},
	"calico-host-local.conflist": {refused: `"calico" in path`, why: "Calico's own plugin"},
	"cilium.conf":                {refused: `"cilium-cni" in path`, why: "Cilium's own plugin"},
	"multus.conf":                {refused: `"multus" in path`, why: "Multus' own plugin"},
	"multus-sriov.conf":          {refused: `"sriov" in path`, why: "the plugin of SR-IOV"},
	"weave.conflist":             {refused: `"weave-net" in path`, why: "Weave's own plugin"},

	"crio-bridge-unlisted.conflist": {refused: "no plugin configs found", why: "it is no list; CRI-O shipped it so in some versions"},
	"crio-loopback-unnamed.conf":    {refused: "name", why: "libcni has wanted a name since 0.8"},
	"podman-ipam-static.conflist":   {refused: "addresses", why: "podman's test data has a list too many"},
	"podman-ipam-empty.conflist":    {standIn: "dnsname"},
	"cnidev-host-device-pci.conf": {fill: []string{`"type"`, `"name": "card", "type"`}, refused: "0000:3d:00.1",
		why: "there is no such PCI device; TestHardware has one, in the guest"},
	"cnidev-host-device-runtime.conf": {fill: []string{`"type"`, `"name": "card", "type"`}, refused: "0000:3d:00.1", why: "as above"},

	"cnidev-bridge-disabled.conf":    {fill: []string{`"true",`, `true`}, alone: true, silent: "the container gets no link", why: "the page has a comma too many, and a string"},
	"cnidev-sbr.conflist":            {pinged: true, fill: []string{`"sbr",`, `"sbr"`}, why: "the page has a comma too many"},
	"cnidev-vrf.conflist":            {fill: []string{`"blue",`, `"blue"`}, pinged: true, why: "the page has a comma too many"},
	"cnidev-firewall.conflist":       {fill: []string{"0.3.1", "0.4.0"}, why: "the reference firewall refuses 0.3.1, too"},
	"cnidev-firewall-chain.conflist": {fill: []string{"0.3.1", "0.4.0"}, why: "the reference firewall refuses 0.3.1, too"},
	"cnidev-firewalld.conflist":      {fill: []string{"0.3.1", "0.4.0"}, why: "the reference firewall refuses 0.3.1, too"},
	"cnidev-portmap-all.conflist": {fill: []string{`"externalSetMarkChain": "CNI-HOSTPORT-SETMARK",`, ``, "192.0.2.0/24", "198.51.100.0/24"},
		why: "portmap takes a bit or a chain; the conditions exclude the address of the tests' host"},
	"cnidev-portmap-nftables.conflist": {fill: []string{"192.0.2.0/24", "198.51.100.0/24"}, why: "the conditions exclude the address of the tests' host"},
	"cnidev-host-device.conf":          {fill: []string{`"type"`, `"name": "card", "type"`}, alone: true, silent: "nobody is on its segment", why: "the page leaves the name out"},
	"cnidev-host-local-cmdline.conf":   {fill: []string{"/tmp/", "/run/"}, why: "/tmp is the machine's"},
	"cnidev-tuning.conf":               {chained: true},
	"cnidev-tuning-attributes.conf":    {chained: true},
	"cnidev-tap.conf":                  {fill: []string{`"selinuxcontext": "system_u:system_r:container_t:s0",`, ""}, silent: "a virtual machine would answer", why: "there is no SELinux"},
	"cnidev-dummy.conf":                {silent: "it leads nowhere"},
	"cnidev-bandwidth.conflist":        {refused: "none of these would pass", why: "456 bits, its burst, are less than a packet"},
	"cnidev-static.conf": {fill: []string{"10.10.5.1", "10.10.0.5", "3ffe:ffff:0::1", "3ffe:ffff:0:1ff::2"}, alone: true,
		onHost: "address add 10.10.0.254/24 dev cni0", answers: "10.10.0.254", why: "gateways of the page are in none of its subnets"},
	"cnidev-route-override.conflist": {standIn: "route-override"},
	"cnidev-vlan.conf":               {alone: true, answers: "10.1.1.250", outside: peer("5", "10.1.1.250/24")},
	"containerd-template.conflist":   {fill: []string{"{{.PodCIDR}}", "10.200.0.0/24"}, why: "containerd fills in what the CRI tells it"},
	"crio-loopback.conflist":         {alone: true, answers: "127.0.0.1"},
	"kubeadm-lo.conf":                {alone: true, answers: "127.0.0.1"},
	"multus-host-device.conf":        {alone: true, answers: netlab.OutsideIPv4},
	"multus-vlan.conf":               {alone: true, answers: "172.16.1.250", outside: peer("1", "172.16.1.250/24")},
	"nerdctl-old.conflist":           {standIn: "isolation"},
	"nomad-consul.conflist":          {standIn: "consul-cni"},
	"podman-create-dnsname.conflist": {standIn: "dnsname"},
	"spec-comments.conflist":         {fill: []string{"// plugin specific parameters", "", "// ipam specific", ""}, why: "no runtime takes comments"},
}

// peer is what ip does to make a link in a VLAN.
func peer(id, address string) string {
	return "link add peer link " + netlab.UplinkName + " type vlan id " + id + "\naddress add " + address + " dev peer\nlink set peer up"
}

// TestCorpus runs the networks that others write, as their runtimes do: ADD, CHECK, STATUS, packets, and a DEL that leaves nothing.
func TestCorpus(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(corpus + "/*.conf*")
	if err != nil || len(paths) == 0 {
		t.Fatal("no networks found", err)
	}
	for name := range networks {
		if _, err := os.Stat(filepath.Join(corpus, name)); err != nil {
			t.Errorf("a row without its file: %v", err)
		}
	}
	for i, path := range paths {
		if netlab.LeftOut(t, i, 2) {
			continue
		}
		name := filepath.Base(path)
		n := networks[name]
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, err := n.load(t, name, strings.NewReplacer(n.fill...).Replace(string(text)))
			switch {
			case err != nil:
				n.isRefused(t, err)
			case n.refused != "":
				host, outside := node(t)
				n.furnish(t, host, outside, list)
				_, err := host.AddList(list, host.NewPod(t, "refused").RuntimeConf(map[string]any{"deviceID": "0000:3d:00.1"}))
				n.isRefused(t, err)
			default:
				needLinks(t, list)
				n.test(t, list)
			}
		})
	}
}

// load returns the list that a runtime makes of a file with this name and text.
func (n network) load(t *testing.T, name, text string) (string, error) {
	t.Helper()
	if n.chained {
		text = `{"name": "chained", "cniVersion": "1.0.0", "plugins": [
			{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.1.0/24"}}, ` + text + `]}`
	} else if filepath.Ext(name) == ".conf" { // runtimes make a list of it
		var conf struct{ Name, CNIVersion string }
		if err := json.Unmarshal([]byte(text), &conf); err != nil {
			return "", err
		}
		text = fmt.Sprintf(`{"name": %q, "cniVersion": %q, "plugins": [%s]}`, conf.Name, conf.CNIVersion, text)
	}
	path := filepath.Join(t.TempDir(), "network.conflist")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := libcni.NetworkConfFromFile(path)
	return text, err
}

func (n network) isRefused(t *testing.T, err error) {
	t.Helper()
	if err == nil || n.refused == "" || !strings.Contains(err.Error(), n.refused) {
		t.Errorf("%v; want it to say %q", err, n.refused)
	}
}
