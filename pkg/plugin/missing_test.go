package plugin

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMissingFeature(t *testing.T) {
	for _, tt := range []struct {
		err          error
		text, remedy string
	}{
		{MissingLinkType("vrf", unix.EOPNOTSUPP), "the kernel has no links of type vrf: operation not supported",
			"load the kernel module vrf, or use a kernel with that module"},
		{MissingLinkType("vlan", unix.EOPNOTSUPP), "the kernel has no links of type vlan: operation not supported",
			"load the kernel module 8021q, or use a kernel with that module, or name another master, as some links can't have VLANs"},
		{&MissingFeature{Name: "rules", Option: "CONFIG_IP_MULTIPLE_TABLES", Err: unix.EOPNOTSUPP}, "the kernel has no rules: operation not supported",
			"use a kernel with CONFIG_IP_MULTIPLE_TABLES"},
		{&MissingFeature{Name: "queues", Version: "5.11", Instead: "do without", Err: unix.EOPNOTSUPP}, "the kernel has no queues: operation not supported",
			"use a kernel of version 5.11 or later, or do without"},
	} {
		err := fmt.Errorf("wrapped: %w", tt.err)
		var m *MissingFeature
		if !errors.As(err, &m) || !IsMissingFeature(err) || m.Error() != tt.text || m.Remedy() != tt.remedy || !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("got %v, %q", tt.err, m.Remedy())
		}
	}
	if IsMissingFeature(unix.EOPNOTSUPP) || IsMissingFeature(nil) {
		t.Error("an error that names no feature is one")
	}
}
