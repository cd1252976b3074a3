package netlab

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Feature is something a kernel may lack. The probe finds out whether it does.
type Feature struct {
	name  string
	probe func() (lacks bool, err error)
}

// The features that tests need and that not every kernel has.
var (
	Dummy = Feature{"dummy links", func() (bool, error) {
		node, err := newNode(func() error { return runIP("link add probe0 type dummy") })
		if err != nil {
			return strings.Contains(err.Error(), "Unknown device type"), err
		}
		node.close()
		return false, nil
	}}
	BridgeVLANFiltering = Feature{"bridge vlan filtering", probeLink("not supported", "link add probe0 type bridge vlan_filtering 1")}
	VLAN                = Feature{"vlan links", probeLink("Unknown device type", "link add base0 type bridge", "link add probe0 link base0 type vlan id 5")}
	SCTP                = Feature{"SCTP sockets", func() (bool, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT), err
		}
		return false, unix.Close(fd)
	}}
)

// probeLink runs commands of ip on a node of their own. When one fails with these words the kernel lacks what they need.
func probeLink(lacking string, commands ...string) func() (lacks bool, err error) {
	return func() (bool, error) {
		node, err := newNode(func() error { return runIP(commands...) })
		if err != nil {
			return strings.Contains(err.Error(), lacking), err
		}
		node.close()
		return false, nil
	}
}

// Need skips the test when the kernel lacks the feature, and fails it when that can't be found out.
func Need(t testing.TB, feature Feature) {
	t.Helper()
	if !Has(t, feature) {
		t.Skipf("this kernel has no %s", feature.name)
	}
}

// Has reports whether the kernel has the feature, and fails the test when that can't be found out.
func Has(t testing.TB, feature Feature) bool {
	t.Helper()
	lacks, err := feature.probe()
	if err != nil && !lacks {
		t.Fatalf("find out whether the kernel has %s: %v", feature.name, err)
	}
	return !lacks
}
