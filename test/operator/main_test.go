// Package operator drives cnictl as an operator does, on nodes made of namespaces with real attachments: scripts in testdata by command, and files.
//
//	go test ./test/operator -run 'TestScripts/^(show|gc_.*)$' # CNIBOX_BIN_DIR names built binaries, or they are built first
package operator

import (
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// silence is how long a packet is waited for that should not arrive, or before it is sent again.
const silence = time.Second

// demo is the network of most tests: dual-stack, masqueraded, with a sysctl and published ports.
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

// node returns a host with all plugins and an outside.
func node(t *testing.T) (*netlab.Host, *netlab.Outside) {
	t.Helper()
	return furnish(t, netlab.NewHost(t))
}

func furnish(t *testing.T, host *netlab.Host) (*netlab.Host, *netlab.Outside) {
	t.Helper()
	host.OwnProcesses(t)
	host.InstallPlugins(t, harmtest.Plugins...)
	return host, host.NewOutside(t)
}

// port is the capability argument that publishes a port of the container.
var port = harmtest.Port

// patience is for what waits by itself, on machines where others run too.
var patience = []string{"--timeout", netlab.Patience.String()}
