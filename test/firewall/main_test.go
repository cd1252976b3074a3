package firewall

import (
	"flag"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// silence is how long a packet is waited for that must not arrive.
const silence = time.Second

var pluginsFlag = flag.String("plugins", "cnibox", "whose plugins to test: cnibox, reference or debian")

// crowdFlag is small by default: where there are few CPUs, more calls only wait for them, with iptables for longer than a call may.
var crowdFlag = flag.Int("crowd", 10, "how many attachments TestConcurrent adds at once")

// install installs the plugins under test.
func install(t testing.TB, host *netlab.Host, names ...string) {
	t.Helper()
	switch *pluginsFlag {
	case "cnibox":
		host.InstallPlugins(t, names...)
	case "reference":
		host.InstallFrom(t, netlab.Reference(t), names...)
	case "debian":
		host.InstallFrom(t, netlab.Debian(t), names...)
	default:
		t.Fatalf("-plugins=%s: want cnibox, reference or debian", *pluginsFlag)
	}
}

// backend is a way the rules of attachments can be kept in.
type backend struct {
	name    string
	config  string // what the plugins' configuration calls it
	flavour string // of iptables
}

var backends = []backend{
	{"nft", "nftables", ""},
	{"iptables-nft", "iptables", "nft"},
	{"iptables-legacy", "iptables", "legacy"},
}

// protocol is one that has ports.
type protocol struct {
	name  string
	dial  func(from *netlab.Namespace, target string, wait time.Duration) (string, error)
	serve func(t testing.TB, at *netlab.Namespace, address string)
}

var protocols = []protocol{
	{"tcp", (*netlab.Namespace).DialTCP, func(t testing.TB, at *netlab.Namespace, address string) { at.ServeTCP(t, address) }},
	{"udp", (*netlab.Namespace).DialUDP, func(t testing.TB, at *netlab.Namespace, address string) { at.ServeUDP(t, address) }},
	{"sctp", (*netlab.Namespace).DialSCTP, func(t testing.TB, at *netlab.Namespace, address string) { at.ServeSCTP(t, address) }},
}

// available tells whether the kernel has sockets of the protocol.
func (p protocol) available(t testing.TB) bool {
	return p.name != "sctp" || netlab.Has(t, netlab.SCTP)
}
