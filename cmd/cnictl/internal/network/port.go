package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Port is a port map, as in the portMappings capability (CNI conventions).
type Port struct {
	HostIP        string `json:"hostIP,omitempty"` // "" is every address
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// String is the port map as a person reads it.
func (p Port) String() string {
	host := "port " + strconv.Itoa(p.HostPort)
	if addr, err := netip.ParseAddr(p.HostIP); err == nil {
		host = netip.AddrPortFrom(addr, uint16(p.HostPort)).String()
	}
	return fmt.Sprintf("%s -> %d/%s", host, p.ContainerPort, p.Protocol)
}

var protocols = []string{"tcp", "udp", "sctp"}

// ParsePort reads [hostIP:]hostPort:containerPort[/protocol]. An IPv6 address
// is in brackets; the protocol is tcp if none is given.
func ParsePort(text string) (Port, error) {
	p := Port{Protocol: "tcp"}
	ports, protocol, given := strings.Cut(text, "/")
	if given {
		p.Protocol = strings.ToLower(protocol)
	}
	if !slices.Contains(protocols, p.Protocol) {
		return Port{}, portError(text, "the protocol must be one of "+strings.Join(protocols, ", "))
	}
	host, container, ok := cutLast(ports)
	if !ok {
		return Port{}, portError(text, "the host's port is missing")
	}
	if ip, port, ok := cutLast(host); ok {
		addr, err := parseHostIP(ip)
		if err != nil {
			return Port{}, portError(text, err.Error())
		}
		p.HostIP, host = addr.String(), port
	}
	var err error
	if p.HostPort, err = parsePort(host); err != nil {
		return Port{}, portError(text, err.Error())
	}
	if p.ContainerPort, err = parsePort(container); err != nil {
		return Port{}, portError(text, err.Error())
	}
	return p, nil
}

func portError(text, why string) error {
	return fmt.Errorf("-p %s: %s; write [hostIP:]hostPort:containerPort[/tcp|udp|sctp], such as 8080:80 or [::1]:53:53/udp", text, why)
}

// cutLast splits at the last colon outside of brackets.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || i < strings.LastIndexByte(s, ']') {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func parseHostIP(s string) (netip.Addr, error) {
	inner, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		inner, bracketed = strings.CutSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(inner)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is no IP address", s)
	}
	if addr.Is6() != bracketed {
		return netip.Addr{}, fmt.Errorf("brackets belong around an IPv6 address, and only there: %q", s)
	}
	return addr, nil
}

func parsePort(s string) (int, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%q is no port from 1 to 65535", s)
	}
	return int(port), nil
}
