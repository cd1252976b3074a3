package lint_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/cnibox/cnibox/pkg/operator/lint"
)

// named writes a network of one plugin.
func named(name, plugin string) string {
	return fmt.Sprintf("{\"cniVersion\": \"1.0.0\", \"name\": %q,\n\"plugins\": [\n%s\n]}\n", name, plugin)
}

func routed(kind, subnet, more string) string {
	return fmt.Sprintf(`{"type": %q, "isGateway": true, "ipam": {"type": "host-local", "subnet": %q%s}}`, kind, subnet, more)
}

// codesOf returns "file:line code" of what is found that is of some severity, or all for "".
func codesOf(findings []lint.Finding) (list []string) {
	for _, f := range findings {
		list = append(list, fmt.Sprintf("%s:%d %s", filepath.Base(f.File), f.Line, f.Code))
	}
	return list
}

// TestTogether compares the files of a directory.
func TestTogether(t *testing.T) {
	single := `{"cniVersion": "1.0.0", "name": "one", "type": "loopback"}`
	tests := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"nothing in common", map[string]string{"10-a.conflist": named("a", routed("bridge", "10.1.0.0/24", "")), "20-b.conflist": named("b", `{"type": "ptp", `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind", "20-b.conflist:3 subnets-overlap"}},
		{"macvlans on one segment", map[string]string{"10-a.conflist": named("a", `{"type": "macvlan", `+ipam+`}`), "20-b.conflist": named("b", `{"type": "ipvlan", `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind", "20-b.conflist:3 range-shared"}},
		{"one master", map[string]string{"10-a.conflist": named("a", `{"type": "macvlan", "master": "eth0", `+ipam+`}`), "20-b.conflist": named("b", `{"type": "macvlan", "master": "eth0", `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind", "20-b.conflist:3 range-shared"}},
		{"two masters", map[string]string{"10-a.conflist": named("a", `{"type": "macvlan", "master": "eth0", `+ipam+`}`), "20-b.conflist": named("b", `{"type": "macvlan", "master": "eth1", `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind"}},
		{"one master, inside of containers", map[string]string{"10-a.conflist": named("a", `{"type": "macvlan", "linkInContainer": true, "master": "eth0", `+ipam+`}`), "20-b.conflist": named("b", `{"type": "macvlan", "linkInContainer": true, "master": "eth0", `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind"}},
		{"two VLANs of one master", map[string]string{"10-a.conflist": named("a", `{"type": "vlan", "master": "eth0", "vlanId": 5, `+ipam+`}`), "20-b.conflist": named("b", `{"type": "vlan", "master": "eth0", "vlanId": 6, `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind"}},
		{"one VLAN of one master", map[string]string{"10-a.conflist": named("a", `{"type": "vlan", "master": "eth0", "vlanId": 5, `+ipam+`}`), "20-b.conflist": named("b", `{"type": "vlan", "master": "eth0", "vlanId": 5, `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind", "20-b.conflist:3 range-shared"}},
		{"a key of another plugin's", map[string]string{"10-a.conflist": named("a", `{"type": "macvlan", "master": "eth0", "vlanId": 5, `+ipam+`}`), "20-b.conflist": named("b", `{"type": "macvlan", "master": "eth0", "vlanId": 6, `+ipam+`}`)},
			[]string{"10-a.conflist:3 unknown-key", "20-b.conflist:1 sorts-behind", "20-b.conflist:3 unknown-key", "20-b.conflist:3 range-shared"}},
		{"one master, each with a part", map[string]string{"10-a.conflist": named("a", `{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.99"}}`), "20-b.conflist": named("b", `{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.100"}}`)},
			[]string{"20-b.conflist:1 sorts-behind"}},
		{"one bridge without a gateway", map[string]string{"10-a.conflist": named("a", `{"type": "bridge", `+ipam+`}`), "20-b.conflist": named("b", `{"type": "bridge", "bridge": "cni0", `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind", "20-b.conflist:3 range-shared"}},
		{"two VLANs of one bridge", map[string]string{"10-a.conflist": named("a", `{"type": "bridge", "vlan": 5, `+ipam+`}`), "20-b.conflist": named("b", `{"type": "bridge", "vlan": 6, `+ipam+`}`)},
			[]string{"20-b.conflist:1 sorts-behind"}},
		{"one bridge, each with a part", map[string]string{"10-a.conflist": named("a", routed("bridge", "10.1.0.0/24", `, "rangeEnd": "10.1.0.99"`)), "20-b.conflist": named("b", routed("bridge", "10.1.0.0/24", `, "rangeStart": "10.1.0.100"`))},
			[]string{"20-b.conflist:1 sorts-behind"}},
		{"one bridge, each without the other's part", map[string]string{"10-a.conflist": named("a", routed("bridge", "10.1.0.0/24", `, "exclude": ["10.1.0.128/25"]`)), "20-b.conflist": named("b", routed("bridge", "10.1.0.0/24", `, "rangeStart": "10.1.0.128"`))},
			[]string{"10-a.conflist:3 only-cnibox", "20-b.conflist:1 sorts-behind"}},
		{"two ranges, each without the other's part", map[string]string{"10-a.conflist": named("a", `{"type": "bridge", "ipam": {"type": "host-local", "ranges": [
			[{"subnet": "10.1.0.0/24", "exclude": ["10.1.0.128/25"]}], [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.128"}]]}}`)},
			[]string{"10-a.conflist:4 only-cnibox"}},
		{"one bridge, two subnets", map[string]string{"10-a.conflist": named("a", routed("bridge", "10.1.0.0/24", "")), "20-b.conflist": named("b", routed("bridge", "10.2.0.0/24", ""))},
			[]string{"20-b.conflist:1 sorts-behind", "20-b.conflist:3 bridge-shared"}},
		{"one name", map[string]string{"10-a.conflist": named("a", `{"type": "bridge", `+ipam+`}`), "9-a.conflist": named("a", `{"type": "bridge", `+ipam+`}`)},
			[]string{"9-a.conflist:1 network-name-twice", "9-a.conflist:1 sorts-behind"}},
		{"a list comes before a single plugin", map[string]string{"10-a.conf": single, "20-a.conflist": named("one", bridge)},
			[]string{"10-a.conf:1 network-name-twice", "20-a.conflist:1 sorts-behind"}},
		{"extensions", map[string]string{"10-a.conf": named("a", bridge), "20-b.conflist": single, "30-c.confilst": named("c", bridge), "40.conflist.bak": named("d", bridge), "README": "x", "kubeconfig.yaml": "{}"},
			[]string{"10-a.conf:2 wrong-extension", "20-b.conflist:1 sorts-behind", "20-b.conflist:1 wrong-extension", "30-c.confilst:1 file-ignored"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			inputs, err := lint.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := codesOf(lint.Files(inputs, options)); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestNode compares a file with a node.
func TestNode(t *testing.T) {
	node := &lint.Node{
		Plugins: func(name string) *lint.Installed {
			return map[string]*lint.Installed{
				"bridge": {Path: "/bin/bridge", Version: "1.4.0"}, "macvlan": {Path: "/bin/macvlan", Version: "1.9.1", Ours: true}, "host-local": {Path: "/bin/host-local"},
			}[name]
		},
		Links:    map[string]int{"eth0": 1500},
		Routes:   []lint.Route{{To: netip.MustParsePrefix("10.9.0.0/16"), Link: "tun0"}, {To: netip.MustParsePrefix("10.1.0.0/24"), Link: "cni0"}},
		Networks: []lint.Input{{Name: "/etc/cni/net.d/10-old.conflist", Text: []byte(named("old", routed("bridge", "10.5.0.0/24", "")))}},
	}
	node.IPv6Off = func(link string) string { return map[string]string{"off0": "net/ipv6/conf/off0/disable_ipv6"}[link] }
	o := options
	o.Node = node
	for text, want := range map[string][]string{
		bridge: nil,
		`{"type": "macvlan", "master": "eth0", "mtu": 1500, "acceptRA": true}`:                                              {"only-cnibox"},
		`{"type": "macvlan", "master": "eth0", "mtu": 1501}`:                                                                {"mtu-above-master"},
		`{"type": "macvlan", "master": "eth1"}`:                                                                             {"master-missing"},
		`{"type": "macvlan", "master": "eth1", "linkInContainer": true}`:                                                    nil,
		`{"type": "dummy", ` + ipam + `}`:                                                                                   {"plugin-not-installed"},
		`{"type": "bridge", "disableContainerInterface": false}`:                                                            nil,
		`{"type": "bridge", "portIsolation": false}`:                                                                        {"plugin-older"},
		`{"type": "bridge", "acceptRA": false}`:                                                                             {"only-cnibox", "plugin-older"},
		`{"type": "bridge", "bridge": "off0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "fd00::/64"}}`:    {"ipv6-off"},
		`{"type": "bridge", "bridge": "on0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "fd00::/64"}}`:     nil,
		`{"type": "bridge", "bridge": "off0", "ipam": {"type": "host-local", "subnet": "fd00::/64"}}`:                       nil,
		`{"type": "bridge", "bridge": "off0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}}`: nil,
		routed("bridge", "10.9.1.0/24", ""):                                                                                 {"bridge-shared", "route-overlap"},
		routed("bridge", "10.5.0.0/24", ""):                                                                                 {"subnets-overlap"},
		routed("bridge", "10.1.0.0/24", ""):                                                                                 {"bridge-shared"}, // its own bridge's route is no clash
	} {
		var got []string
		for _, f := range lint.Text("a.conflist", []byte(named("new", text)), o) {
			got = append(got, f.Code)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestSARIF has the library check what we write.
func TestSARIF(t *testing.T) {
	list := lint.Files([]lint.Input{{Name: "-", Text: []byte(named("a", `{"type": "brigde"}`))}, {Name: "/a b/x.conf", Text: []byte("{")}, {Name: "x.conflist"}}, options)
	report, err := lint.SARIF(list, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	again, err := sarif.FromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	run := again.Runs[0]
	if len(run.Results) != len(list) || len(run.Tool.Driver.Rules) != len(lint.Codes()) {
		t.Errorf("%d results of %d, %d rules", len(run.Results), len(list), len(run.Tool.Driver.Rules))
	}
	for i, r := range run.Results {
		where := r.Locations[0].PhysicalLocation
		if *r.RuleID != list[i].Code || *where.Region.StartLine != list[i].Line || !strings.HasPrefix(*r.Message.Text, list[i].Summary) {
			t.Errorf("%v", list[i])
		}
	}
}

// TestReadNode finds links, networks and plugins. A program that nobody knows is not run.
func TestReadNode(t *testing.T) {
	bin, confs := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		bin + "/calico": "#!/bin/sh\ntouch " + bin + "/ran\necho CNI calico plugin v1.4.0\n", confs + "/10-a.conflist": named("a", bridge),
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n, err := lint.ReadNode([]string{"/nowhere", bin}, confs)
	if err != nil {
		t.Fatal(err)
	}
	if n.Links["lo"] == 0 || len(n.Networks) != 1 {
		t.Errorf("%v, %v", n.Links, n.Networks)
	}
	if got := n.Plugins("calico"); got == nil || *got != (lint.Installed{Path: bin + "/calico"}) {
		t.Errorf("calico: %+v", got)
	}
	if _, err := os.Stat(bin + "/ran"); err == nil {
		t.Error("calico was run")
	}
	if n.Plugins("../calico") != nil || n.Plugins("vlan") != nil {
		t.Error("plugins that are not there are found")
	}
	if _, err := lint.ReadNode(nil, "/nowhere"); err != nil {
		t.Errorf("without a directory of networks: %v", err)
	}
}
