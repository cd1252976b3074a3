package node

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
)

// Port is a published port.
type Port struct {
	HostIP        string `json:"hostIP,omitempty"`
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort,omitempty"` // 0 if only the rules are there, which libcni has no result of
	Protocol      string `json:"protocol"`
}

// Host returns where the port is published, port or address:port.
func (p Port) Host() string {
	if ip, err := netip.ParseAddr(p.HostIP); err == nil {
		return netip.AddrPortFrom(ip, uint16(p.HostPort)).String()
	}
	return strconv.Itoa(p.HostPort)
}

// String returns the port as `cnictl run -p` takes it.
func (p Port) String() string { return fmt.Sprintf("%s:%d/%s", p.Host(), p.ContainerPort, p.Protocol) }

// isSame reports whether two are one port of the host. A runtime may call all addresses of the host by one of several names.
func (p Port) isSame(q Port) bool {
	a, _ := netip.ParseAddr(p.HostIP)
	b, _ := netip.ParseAddr(q.HostIP)
	isAny := func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }
	return p.HostPort == q.HostPort && p.Protocol == q.Protocol && (a == b || isAny(a) && isAny(b))
}

// port returns the port that is published, if it is one.
func (t Holding) port() (Port, bool) {
	m, ok := nft.PortOf(t.Held)
	p := Port{HostPort: int(m.HostPort), Protocol: spec.ProtocolName(m.Protocol)}
	if m.HostIP.IsValid() {
		p.HostIP = m.HostIP.String()
	}
	return p, ok
}
