package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestBackendIsShown asks cnictl which backend plugins choose on a host, and why,
// and makes sure that they do.
func TestBackendIsShown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, link, conflist string
		want                 []string
		inIPTables           bool
	}{
		{"nothing special", "", demo, []string{
			"masquerades with nftables: ipMasqBackend is left out", "publishes ports with nftables: backend is left out",
		}, false},
		{"IPVS", "kube-ipvs0", demo, []string{
			"masquerades with iptables: kube-proxy is in IPVS mode", "publishes ports with iptables: kube-proxy is in IPVS mode",
		}, true},
		{"configured", "", strings.Replace(demo, `"type": "portmap"`, `"type": "portmap", "backend": "iptables"`, 1), []string{
			"masquerades with nftables", "publishes ports with iptables: backend says so",
		}, true},
		{"demanded", "", strings.Replace(demo, `"type": "portmap"`, `"type": "portmap", "externalSetMarkChain": "KUBE-MARK-MASQ"`, 1), []string{
			"publishes ports with iptables: externalSetMarkChain needs it",
		}, true},
		{"IPVS, and configured", "kube-ipvs0", strings.Replace(demo, `"type": "portmap"`, `"type": "portmap", "backend": "nftables"`, 1), []string{
			"masquerades with iptables: kube-proxy is in IPVS mode", "publishes ports with nftables: backend says so",
		}, false},
		{"IPVS, and demanded", "kube-ipvs0", strings.Replace(demo, `"type": "portmap"`, `"type": "portmap", "conditionsV4": ["ip", "daddr", "192.0.2.1"]`, 1), []string{
			"publishes ports with nftables: conditionsV4 (in the words of nft) needs it",
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			if tt.link != "" {
				host.MustRun(t, "ip", "link", "add", tt.link, "type", "bridge")
			}
			host.MustRun(t, "iptables", "-t", "nat", "-N", "KUBE-MARK-MASQ")
			host.MustRun(t, "ip6tables", "-t", "nat", "-N", "KUBE-MARK-MASQ")
			host.Do(func() {
				dir := "/etc/cni/net.d"
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "10-demo.conflist"), []byte(tt.conflist), 0o644); err != nil {
					t.Fatal(err)
				}
			})
			status := host.MustRun(t, netlab.Cnictl(t), "status", "demo")
			for _, want := range tt.want {
				if !strings.Contains(status, want) {
					t.Errorf("cnictl status says\n%s\nwant %q", status, want)
				}
			}
			attach(t, host, tt.conflist, "web", ports("8080:80/tcp"))
			if got := strings.Contains(host.MustRun(t, "iptables-save", "-t", "nat"), "--dport 8080 -j DNAT"); got != tt.inIPTables {
				t.Errorf("the port is in the rules of iptables: %v", got)
			}
		})
	}
}
