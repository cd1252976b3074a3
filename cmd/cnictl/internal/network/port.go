package network

import (
	"fmt"
	"net/netip"
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

// ParsePort reads [hostIP:]hostPort:containerPort[/protocol]. An IPv6 address is in brackets; the protocol is tcp if none is given.
func ParsePort(text string) (Port, error) {
	refuse := func(format string, args ...any) (Port, error) {
		return Port{}, fmt.Errorf("-p %s: %s; write [hostIP:]hostPort:containerPort[/tcp|udp|sctp], such as 8080:80 or [::1]:53:53/udp",
			text, fmt.Sprintf(format, args...))
	}
	ports, protocol, given := strings.Cut(strings.ToLower(text), "/")
	if !given {
		protocol = "tcp"
	}
	if protocol != "tcp" && protocol != "udp" && protocol != "sctp" {
		return refuse("the protocol must be one of tcp, udp, sctp")
	}
	host, container, ok := cutLast(ports)
	if !ok {
		return refuse("the host's port is missing")
	}
	p := Port{Protocol: protocol}
	if ip, port, ok := cutLast(host); ok {
		bare := strings.Trim(ip, "[]")
		addr, err := netip.ParseAddr(bare)
		if err != nil || addr.Is4() && ip != bare || addr.Is6() && ip != "["+bare+"]" {
			return refuse("%q is no IP address; brackets belong around an IPv6 address, and only there", ip)
		}
		p.HostIP, host = addr.String(), port
	}
	for _, field := range []struct {
		text string
		port *int
	}{{host, &p.HostPort}, {container, &p.ContainerPort}} {
		port, err := strconv.ParseUint(field.text, 10, 16)
		if err != nil || port == 0 {
			return refuse("%q is no port from 1 to 65535", field.text)
		}
		*field.port = int(port)
	}
	return p, nil
}

// cutLast splits at the last colon outside of brackets.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || i < strings.LastIndexByte(s, ']') {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
