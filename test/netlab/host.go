package netlab

import (
	"fmt"
	"os"
	"testing"
)

// Host is a node: a network namespace with its loopback link up and forwarding off, and a mount namespace with empty
// /run, /var/lib/cni, /etc/cni and /opt/cni. Hosts know nothing of each other.
type Host struct {
	Namespace
	// programs is the directory that plugins look for programs in first; "" if there is none.
	programs string
}

// NewHost makes a node that lasts until the test ends. Processes that are then still in it fail the test.
func NewHost(t testing.TB) *Host {
	t.Helper()
	if machineNetns == nil {
		t.Fatal("netlab.NewHost: TestMain of this package must call netlab.Main")
	}
	node, err := newNode(prepareHost)
	if err != nil {
		t.Fatal("netlab.NewHost: ", err)
	}
	t.Cleanup(func() {
		for _, stray := range node.close() {
			t.Errorf("still running at the end of the test: %s", stray)
		}
	})
	return &Host{Namespace: Namespace{name: "host", netns: node.hostNetns, node: node}}
}

// NetnsPath returns a path at which the Host's own network namespace can be opened, by its processes too.
func (h *Host) NetnsPath() string {
	return fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), h.node.keeperTID)
}

// prepareHost readies the namespaces of the calling thread.
func prepareHost() error {
	if err := privateFiles(); err != nil {
		return err
	}
	if err := resetSysctls(); err != nil {
		return err
	}
	return setLinkUp("lo")
}

// resetSysctls sets to the kernel's defaults what a new network namespace copies from the machine's instead.
func resetSysctls() error {
	values := []struct{ key, value string }{
		// First: writing it resets other values.
		{"ipv4/ip_forward", "0"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/conf/all/route_localnet", "0"},
		{"ipv4/conf/default/route_localnet", "0"},
		{"ipv6/conf/all/forwarding", "0"},
		{"ipv6/conf/all/disable_ipv6", "0"},
		{"ipv6/conf/default/disable_ipv6", "0"},
	}
	for _, v := range values {
		if err := os.WriteFile("/proc/sys/net/"+v.key, []byte(v.value), 0); err != nil {
			return fmt.Errorf("reset a sysctl: %w", err)
		}
	}
	return nil
}
