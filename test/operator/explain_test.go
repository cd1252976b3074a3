package operator

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// explained is what explain prints.
type explained struct {
	Plugin, Network string
	Code            uint
	Findings        []struct {
		ID     string
		Here   []string
		Doctor []struct{ Code string }
	}
}

// explain has cnictl explain a text that it reads from standard input.
func (o *operator) explain(text string, args ...string) (e explained) {
	o.Helper()
	cmd := o.host.Command(netlab.Cnictl(o), append([]string{"explain", "--json"}, args...)...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, os.Stderr
	_ = o.host.Run(cmd)
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		o.Fatalf("%v in %s", err, out.String())
	}
	return e
}

// TestExplain makes mistakes with real plugins, ours and the reference's, and has the errors explained.
func TestExplain(t *testing.T) {
	t.Parallel()
	const (
		ipam   = `"ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}`
		bridge = `{"type": "bridge", "bridge": "demo0", "isGateway": true, ` + ipam + `}`
	)
	for _, mistake := range []struct {
		name     string
		plugins  string
		first    bool   // another container is attached before
		script   string // run on the host before
		args     []string
		id       string
		here     string
		doctor   string
		onlyOurs bool
	}{
		{name: "pool full", plugins: strings.Replace(bridge, `24"`, `24", "rangeStart": "10.88.0.9", "rangeEnd": "10.88.0.9"`, 1), first: true, id: "pool-full",
			here: "network demo: 1 of 1 addresses of 10.88.0.9-10.88.0.9 are taken"},
		{name: "port taken", plugins: bridge + "," + portmap, first: true, args: []string{"-p", "8080:80"}, id: "port-published", here: "port 8080 is of demo/first/eth0, which is alive", onlyOurs: true},
		{name: "no plugin", plugins: `{"type": "nosuch"}`, id: "plugin-not-found", here: "nosuch is in none of the usual directories", doctor: "plugin-missing"},
		{name: "other subnet", plugins: bridge, script: "ip link add demo0 type bridge; ip address add 10.99.0.1/24 dev demo0; ip link set demo0 up", id: "gateway-has-other-subnet",
			here: "demo0 has the addresses 10.99.0.1/24", doctor: "bridge-other-subnet"},
		{name: "no master", plugins: `{"type": "macvlan", "master": "eth7", ` + ipam + `}`, id: "master-missing", here: "uplink0"},
		{name: "not chained", plugins: portmap, args: []string{"-p", "8080:80"}, id: "previous-result-missing"},
		{name: "no DHCP daemon", plugins: `{"type": "macvlan", "master": "uplink0", "ipam": {"type": "dhcp"}}`, id: "dhcp-daemon-down", here: "/run/cni/dhcp.sock: no such file", doctor: "dhcp-daemon-down"},
		{name: "no flannel", plugins: `{"type": "flannel"}`, id: "flannel-subnet", here: "/run/flannel/subnet.env: no such file", doctor: "subnet-env-missing", onlyOurs: true},
		{name: "interface there", plugins: bridge, script: "ip -n web link add eth0 type veth peer name x", id: "interface-exists"},
		{name: "MTU too large", plugins: `{"type": "macvlan", "master": "uplink0", "mtu": 9000, ` + ipam + `}`, id: "mtu-invalid"},
		{name: "ranges overlap", plugins: strings.Replace(bridge, `"subnet": "10.88.0.0/24"`, `"ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "10.88.0.0/25"}]]`, 1), id: "ranges-overlap"},
		{name: "wrong value", plugins: strings.Replace(bridge, "10.88.0.0/24", "10.88.0.0", 1), id: "wrong-key", onlyOurs: true},
		{name: "unreachable gateway", plugins: strings.Replace(bridge, `24"`, `24", "routes": [{"dst": "10.99.0.0/16", "gw": "10.98.0.1"}]`, 1), id: "route-gateway-unreachable"},
		{name: "no such network", plugins: bridge, script: "mv /etc/cni/net.d/10-demo.conflist /etc/cni/net.d/20-other", id: "no-network", here: "/etc/cni/net.d has no network"},
		{name: "broken file", plugins: bridge + ",", id: "configuration-not-json", here: "10-demo.conflist can't be read", doctor: "network-file-broken"},
		{name: "full disk", plugins: bridge, script: "mkdir -p /var/lib/cni/networks; mount -t tmpfs -o nr_inodes=2 tmpfs /var/lib/cni/networks", id: "disk-full"},
		{name: "read-only", plugins: bridge, script: "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys", id: "sys-read-only"},
		{name: "no namespace", plugins: bridge, script: "umount /run/netns/web; rm /run/netns/web", id: "namespace-gone", here: "/run/netns/web"},
		{name: "a file in place of a namespace", plugins: bridge, script: "umount /run/netns/web", id: "namespace-unknown-magic", here: "/run/netns/web is something else"},
	} {
		for _, whose := range []string{"cnibox", "reference"} {
			if mistake.onlyOurs && whose != "cnibox" {
				continue
			}
			t.Run(mistake.name+"/"+whose, func(t *testing.T) {
				t.Parallel()
				o := newOperator(t)
				if whose == "reference" {
					o.host.InstallFrom(t, netlab.Reference(t), "bridge", "macvlan", "host-local", "portmap", "dhcp", "flannel")
				}
				o.network(probed(mistake.plugins))
				pod := o.host.NewPod(t, "web")
				if mistake.first {
					o.must(append([]string{"add", "demo", o.host.NewPod(t, "first").Path(), "--id", "first"}, mistake.args...)...)
				}
				if mistake.script != "" {
					o.host.MustRun(t, "sh", "-ec", mistake.script)
				}
				code, printed := o.cnictl(append([]string{"add", "demo", pod.Path(), "--id", "web"}, mistake.args...)...)
				if code == 0 {
					t.Fatalf("it was no mistake:\n%s", printed)
				}
				e := o.explain(printed)
				t.Logf("%s%+v", printed, e)
				found := false
				for _, f := range e.Findings {
					if f.ID != mistake.id {
						continue
					}
					found = true
					if !strings.Contains(strings.Join(f.Here, "\n"), mistake.here) {
						t.Errorf("on this node: %q, want %q", f.Here, mistake.here)
					}
					if mistake.doctor != "" && !slices.ContainsFunc(f.Doctor, func(d struct{ Code string }) bool { return d.Code == mistake.doctor }) {
						t.Errorf("doctor finds %v, want %s", f.Doctor, mistake.doctor)
					}
				}
				if !found {
					t.Errorf("%s is not found", mistake.id)
				}
			})
		}
	}
}
