package sysctl

import (
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	tests := []struct {
		text, path string
	}{
		{"net.ipv4.ip_forward", "net/ipv4/ip_forward"},
		{"net/ipv4/ip_forward", "net/ipv4/ip_forward"},
		{"/net/ipv4//ip_forward", "net/ipv4/ip_forward"},
		{"net/ipv4/conf/eth0.5/arp_filter", "net/ipv4/conf/eth0.5/arp_filter"},
		{"net.ipv4.conf.eth0/5.arp_filter", "net/ipv4/conf/eth0.5/arp_filter"},
		{"net.ipv4.conf.IFNAME.arp_filter", "net/ipv4/conf/br.1/arp_filter"},
		{"net/ipv4/conf/IFNAME/arp_filter", "net/ipv4/conf/br.1/arp_filter"},
		{"net.ipv4.conf.vIFNAME.IFNAME", "net/ipv4/conf/vbr.1/IFNAME"},
	}
	for _, tt := range tests {
		k, err := ParseKey(tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		k = k.ForInterface("br.1")
		if k.Path() != tt.path || k.String() != tt.text {
			t.Errorf("%q: path %q, want %q; text %q", tt.text, k.Path(), tt.path, k.String())
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, text := range []string{
		"", ".", "/", "net", "net.", "net/", "kernel.hostname", "kernel/hostname", "ipv4.ip_forward", "network.ipv4", "/proc/sys/net/ipv4/ip_forward",
		"net/../kernel/hostname", "net/ipv4/../../kernel/hostname", "net.//.kernel.hostname", "net/./ipv4", "../net/ipv4/ip_forward",
		"net.ipv4.ip forward", "net/ipv4/x\x00y", "net.ipv4.x\n",
	} {
		k, err := ParseKey(text)
		if err == nil {
			t.Errorf("%q: taken as %s", text, k.Path())
		} else if !strings.Contains(err.Error(), "invalid net sysctl key") {
			t.Errorf("%q: error %q", text, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"net.ipv4.conf.IFNAME.arp_filter", "net/ipv4/conf/eth0.5/arp_filter", "net.//.x", "net/IFNAME/..", "net.ipv4.conf.eth0/5.x"} {
		f.Add(text, "eth0.5")
	}
	f.Fuzz(func(t *testing.T, text, ifName string) {
		if strings.ContainsAny(ifName, "/") || ifName == "." || ifName == ".." || ifName == "" {
			return // no name of a link
		}
		k, err := ParseKey(text)
		if err != nil {
			return
		}
		path := k.ForInterface(ifName).Path()
		if !strings.HasPrefix(path, "net/") {
			t.Fatalf("%q leads to %q", text, path)
		}
		for _, part := range strings.Split(path, "/") {
			if part == "" || part == "." || part == ".." {
				t.Fatalf("%q leads to %q", text, path)
			}
		}
		again, err := ParseKey(k.Path())
		if err != nil || again.Path() != k.Path() {
			t.Fatalf("%q: path %q reads back as %q, %v", text, k.Path(), again.Path(), err)
		}
	})
}
