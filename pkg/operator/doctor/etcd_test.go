package doctor

import (
	"slices"
	"testing"

	"github.com/cnibox/cnibox/pkg/ipam/etcdpool"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// TestHost finds what etcd says of this host.
func TestHost(t *testing.T) {
	report := func(h ...etcdpool.Host) *node.Shared {
		return &node.Shared{Report: etcdpool.Report{Host: "one", Hosts: h}}
	}
	for _, tt := range []struct {
		name   string
		report *node.Shared
		codes  []string
	}{
		{"it is well", report(etcdpool.Host{Name: "one", Left: 50, Grace: 100}), nil},
		{"it has nothing", report(), nil},
		{"another one is not renewed", report(etcdpool.Host{Name: "one", Left: 100, Grace: 100}, etcdpool.Host{Name: "two", Left: 1, Grace: 100}), nil},
		{"it is not renewed", report(etcdpool.Host{Name: "one", Left: 49, Grace: 100}), []string{"etcd-lease-not-renewed"}},
		{"another machine has its name", report(etcdpool.Host{Name: "one", MachineID: "no such machine", Left: 100, Grace: 100}), []string{"etcd-host-name-taken"}},
		{"etcd is away", &node.Shared{Error: "no member answers"}, []string{"etcd-unreachable"}},
	} {
		var codes []string
		for _, f := range checkHost("lan", tt.report) {
			codes = append(codes, f.Code)
		}
		if !slices.Equal(codes, tt.codes) {
			t.Errorf("%s: %v, want %v", tt.name, codes, tt.codes)
		}
	}
}
