package link

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestForwards(t *testing.T) {
	s := newSpace(t)
	tests := []struct {
		family uint8
		path   string
	}{
		{unix.AF_INET, "/proc/sys/net/ipv4/ip_forward"},
		{unix.AF_INET6, "/proc/sys/net/ipv6/conf/all/forwarding"},
	}
	for _, tt := range tests {
		for _, value := range []string{"0", "1", "0"} {
			err := s.ns.Run(func() error { return os.WriteFile(tt.path, []byte(value), 0o644) })
			if err != nil {
				t.Fatal(err)
			}
			if on, err := s.Forwards(tt.family); err != nil || on != (value == "1") {
				t.Errorf("%s is %s: Forwards = %v, %v", tt.path, value, on, err)
			}
		}
	}
	if on, err := s.Forwards(unix.AF_APPLETALK); !errors.Is(err, unix.EOPNOTSUPP) || on {
		t.Errorf("a family without forwarding: %v, %v", on, err)
	}
}
