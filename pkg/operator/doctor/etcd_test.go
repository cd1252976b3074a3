package doctor

import (
	"slices"
	"testing"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// TestHost finds what etcd says of this host.
func TestHost(t *testing.T) {
	report := func(h ...shared.Host) *node.Shared {
		return &node.Shared{Report: shared.Report{Host: "one", Hosts: h}}
	}
	for _, tt := range []struct {
		name   string
		report *node.Shared
		codes  []string
	}{
		{"it is well", report(shared.Host{Name: "one", Left: 50, Grace: 100}), nil},
		{"it has nothing", report(), nil},
		{"another one is not renewed", report(shared.Host{Name: "one", Left: 100, Grace: 100}, shared.Host{Name: "two", Left: 1, Grace: 100}), nil},
		{"it is not renewed", report(shared.Host{Name: "one", Left: 49, Grace: 100}), []string{"etcd-lease-not-renewed"}},
		{"another machine has its name", report(shared.Host{Name: "one", MachineID: "no such machine", Left: 100, Grace: 100}), []string{"etcd-host-name-taken"}},
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
