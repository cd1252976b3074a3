package sysctl_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/sysctl"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func TestSetChangesTheThreadsNamespaceOnly(t *testing.T) {
	host := netlab.NewHost(t)
	pod, other := host.NewPod(t, "pod"), host.NewPod(t, "other")
	const key = "net/ipv4/conf/lo/arp_filter"
	pod.Do(func() {
		if err := sysctl.Set(key, "1"); err != nil {
			t.Fatal(err)
		}
	})
	for _, tt := range []struct {
		in   *netlab.Pod
		want string
	}{{pod, "1"}, {other, "0"}} {
		tt.in.Do(func() { want(t, tt.in.Name(), sysctl.Get, key, tt.want) })
	}
}

// want reports a sysctl that does not have a value.
func want(t *testing.T, where string, get func(string) (string, error), key, value string) {
	t.Helper()
	got, err := get(key)
	if err != nil || got != value {
		t.Errorf("%s: %s is %.80q, %v; want %.80q", where, key, got, err, value)
	}
}

func TestValues(t *testing.T) {
	pod := netlab.NewHost(t).NewPod(t, "pod")
	// Each second port, so that the kernel can't join them to ranges: more
	// than one read holds.
	long := "10001"
	for port := 10003; len(long) < 12000; port += 2 {
		long += "," + strconv.Itoa(port)
	}
	tests := []struct {
		key, value, want string
	}{
		{"net.ipv4.tcp_rmem", "4096 87380 6291456", "4096\t87380\t6291456"},
		{"net.ipv4.ip_local_port_range", "20000\t30000", "20000\t30000"},
		{"net.ipv4.ip_local_reserved_ports", "8080,9090-9092", "8080,9090-9092"},
		{"net.ipv4.ip_local_reserved_ports", long, long},
		{"net.ipv4.ip_local_reserved_ports", "", ""},
		{"net.ipv4.conf.lo.arp_filter", "1 ", "1"},
	}
	pod.Do(func() {
		for _, tt := range tests {
			if err := sysctl.Set(tt.key, tt.value); err != nil {
				t.Errorf("set %s: %v", tt.key, err)
				continue
			}
			want(t, fmt.Sprintf("set to %.80q", tt.value), sysctl.Get, tt.key, tt.want)
		}
	})
}

func TestErrors(t *testing.T) {
	pod := netlab.NewHost(t).NewPod(t, "pod")
	tests := []struct {
		key, value string
		is         error
		message    string // part of it
		remedy     string // part of it
	}{
		{"net.ipv4.conf.nolink.arp_filter", "1", unix.ENOENT, `set sysctl net.ipv4.conf.nolink.arp_filter to "1"`, "check the spelling"},
		{"net/ipv4.ip_forward", "1", unix.ENOENT, `set sysctl net/ipv4.ip_forward to "1"`, "dots belong to the names"},
		{"net.ipv4.conf/lo/arp_filter", "1", unix.ENOENT, `(net/ipv4/conf.lo.arp_filter)`, ""},
		{"net.ipv4.conf.lo.arp_filter", "on", unix.EINVAL, `to "on"`, "does not take that value"},
		{"net.ipv4.conf.lo.arp_filter", "", unix.EINVAL, `to ""`, "does not take that value"},
		{"net.ipv4.conf.lo.arp_filter", "1 2", unix.EINVAL, `took only "1 "`, "does not take that value"},
	}
	pod.Do(func() {
		for _, tt := range tests {
			err := sysctl.Set(tt.key, tt.value)
			var e *sysctl.Error
			if !errors.As(err, &e) || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.message) || !strings.Contains(e.Remedy(), tt.remedy) {
				t.Errorf("set %s to %q: %v", tt.key, tt.value, err)
			}
		}
		if _, err := sysctl.Get("net.ipv4.conf.nolink.arp_filter"); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "read sysctl net.ipv4.conf.nolink.arp_filter") {
			t.Errorf("read what is not there: %v", err)
		}
	})
}

func TestWritable(t *testing.T) {
	host := netlab.NewHost(t)
	host.Do(func() {
		if err := sysctl.Writable(); err != nil {
			t.Error(err)
		}
		forbidWrites(t)
		if err := sysctl.Writable(); err == nil {
			t.Error("read-only /proc/sys: no error")
		}
	})
}

// forbidWrites makes /proc/sys read-only, as it is in containers.
func forbidWrites(t *testing.T) {
	t.Helper()
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY} {
		if err := unix.Mount("/proc/sys", "/proc/sys", "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
}
