package netlab

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Feature is something a kernel may lack. The probe finds out, once, whether it does.
type Feature struct {
	Name  string
	probe func() (lacks bool, err error)
}

// The features that tests need and that not every kernel has.
var (
	Dummy               = linkFeature("dummy", "link add probe0 type dummy")
	IPVLAN              = linkFeature("ipvlan", "link add base0 type bridge", "link add probe0 link base0 type ipvlan")
	VLAN                = linkFeature("vlan", "link add base0 type bridge", "link add probe0 link base0 type vlan id 5")
	VRF                 = linkFeature("vrf", "link add probe0 type vrf table 5")
	BridgeVLANFiltering = feature("bridge vlan filtering", func() (bool, error) {
		return lacks("not supported", "link add probe0 type bridge vlan_filtering 1")
	})
	BridgeNetfilter = feature("br_netfilter", func() (bool, error) {
		_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
		return errors.Is(err, fs.ErrNotExist), err
	})
	TimeNamespace = feature("time namespaces", func() (bool, error) {
		_, err := os.Stat("/proc/self/ns/time")
		return errors.Is(err, fs.ErrNotExist), err
	})
	SCTP = feature("sctp", func() (bool, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT), err
		}
		return false, unix.Close(fd)
	})
)

func feature(name string, probe func() (lacks bool, err error)) Feature {
	return Feature{name, sync.OnceValues(probe)}
}

// linkFeature is a kind of link, of which ip makes one.
func linkFeature(kind string, commands ...string) Feature {
	return feature(kind, func() (bool, error) { return lacks("Unknown device type", commands...) })
}

// lacks runs commands of ip on a node of their own, and reports whether one fails with the words by which it says that the
// kernel does not have something.
func lacks(words string, commands ...string) (bool, error) {
	node, err := newNode(func() error { return runIP(commands...) })
	if err != nil {
		return strings.Contains(err.Error(), words), err
	}
	node.close()
	return false, nil
}

// Need skips the test when the kernel lacks the feature, and fails it when that can't be found out.
func Need(t testing.TB, feature Feature) {
	t.Helper()
	if !Has(t, feature) {
		t.Skipf("this kernel has no %s", feature.Name)
	}
}

// Has reports whether the kernel has the feature, and fails the test when that can't be found out.
func Has(t testing.TB, feature Feature) bool {
	t.Helper()
	lacks, err := feature.probe()
	if err != nil && !lacks {
		t.Fatalf("find out whether the kernel has %s: %v", feature.Name, err)
	}
	return !lacks
}
