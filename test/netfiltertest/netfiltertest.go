// Package netfiltertest reads what tests of the packet filter are about from short texts.
package netfiltertest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// KeyOf returns the key of a container's first interface on network net.
func KeyOf(id string) plugin.Key { return KeyOfInterface(id, "eth0") }

// KeyOfInterface returns the key of any interface of a container on network net.
func KeyOfInterface(id, ifName string) plugin.Key {
	return plugin.Key{Network: "net", ContainerID: id, IfName: ifName}
}

// GC returns a request for a GC of a network.
func GC(network string, valid ...plugin.Key) *plugin.Request {
	return &plugin.Request{Key: plugin.Key{Network: network}, Valid: valid}
}

// Prefixes reads addresses with their networks.
func Prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// Addrs reads addresses.
func Addrs(texts ...string) (list []netip.Addr) {
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

// PortMaps reads port maps such as "tcp/8080=10.88.0.2:80" and "udp/192.0.2.1:53=10.88.0.2:53".
func PortMaps(t testing.TB, texts ...string) (list []spec.PortMap) {
	t.Helper()
	for _, s := range texts {
		host, container, _ := strings.Cut(s, "=")
		name, port, _ := strings.Cut(host, "/")
		m := spec.PortMap{Container: netip.MustParseAddrPort(container)}
		var ok bool
		if m.Protocol, ok = spec.Protocol(name); !ok {
			t.Fatalf("protocol of %q", s)
		}
		if a, err := netip.ParseAddrPort(port); err == nil {
			m.HostIP, m.HostPort = a.Addr(), a.Port()
		} else if _, err := fmt.Sscan(port, &m.HostPort); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// Must ends a test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
