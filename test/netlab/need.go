package netlab

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Feature is something a kernel may lack. Its probe runs in a network namespace of its own and succeeds when the feature
// is there.
type Feature struct {
	name  string
	probe func() error
}

// The features that tests need and that not every kernel has.
var (
	Dummy  = Feature{"dummy links", func() error { return addLink(&netlink.Dummy{}) }}
	VRF    = Feature{"VRF links", func() error { return addLink(&netlink.Vrf{Table: 100}) }}
	IFB    = Feature{"IFB links", func() error { return addLink(&netlink.Ifb{}) }}
	VLAN   = Feature{"802.1Q VLAN links", func() error { return addLinkOver(vlan) }}
	IPvlan = Feature{"ipvlan links", func() error { return addLinkOver(ipvlan) }}
	// Macvlan covers macvtap too, which is built on it.
	Macvlan = Feature{"macvlan links", func() error { return addLinkOver(macvlan) }}
	// BridgeVLANFiltering is the filter itself. Without it some kernels accept the setting and do nothing.
	BridgeVLANFiltering = Feature{"VLAN filtering of bridges", probeVLANFiltering}
	SCTP                = Feature{"SCTP sockets", probeSCTP}
)

// verdicts remembers what the probes found, by feature name.
var verdicts = struct {
	sync.Mutex
	known map[string]error
}{known: map[string]error{}}

// Need skips the test when the kernel lacks the feature, and fails it when that can't be found out.
func Need(t testing.TB, feature Feature) {
	t.Helper()
	err := verdict(feature)
	switch {
	case err == nil:
	case isUnsupported(err):
		t.Skipf("this kernel has no %s: %v", feature.name, err)
	default:
		t.Fatalf("find out whether the kernel has %s: %v", feature.name, err)
	}
}

// Has tells whether the kernel has the feature, and fails the test when that can't be found out.
func Has(t testing.TB, feature Feature) bool {
	t.Helper()
	err := verdict(feature)
	if err != nil && !isUnsupported(err) {
		t.Fatalf("find out whether the kernel has %s: %v", feature.name, err)
	}
	return err == nil
}

// verdict returns the error of the feature's probe, which runs once.
func verdict(feature Feature) error {
	verdicts.Lock()
	defer verdicts.Unlock()
	err, known := verdicts.known[feature.name]
	if !known {
		err = probeAlone(feature)
		verdicts.known[feature.name] = err
	}
	return err
}

// probeAlone runs the probe in a new network namespace.
func probeAlone(feature Feature) error {
	node, err := newNode(feature.probe)
	if err != nil {
		return err
	}
	node.close()
	return nil
}

// isUnsupported reports whether err is one of those by which the kernel says that it lacks something.
func isUnsupported(err error) bool {
	for _, no := range []error{
		unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT, errWithoutEffect,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// errWithoutEffect is for what the kernel accepts and does not do.
var errWithoutEffect = errors.New("accepted without effect")

// addLink adds a link named probe0.
func addLink(link netlink.Link) error {
	link.Attrs().Name = "probe0"
	return netlink.LinkAdd(link)
}

// addLinkOver adds a link that needs another below it.
func addLinkOver(make func(netlink.LinkAttrs) netlink.Link) error {
	lower := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lower0"}, PeerName: "lower1"}
	if err := netlink.LinkAdd(lower); err != nil {
		return fmt.Errorf("add the link below it: %v", err)
	}
	return addLink(make(netlink.LinkAttrs{ParentIndex: lower.Index}))
}

func vlan(attrs netlink.LinkAttrs) netlink.Link {
	return &netlink.Vlan{LinkAttrs: attrs, VlanId: 10, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
}

func ipvlan(attrs netlink.LinkAttrs) netlink.Link {
	return &netlink.IPVlan{LinkAttrs: attrs, Mode: netlink.IPVLAN_MODE_L2}
}

func macvlan(attrs netlink.LinkAttrs) netlink.Link {
	return &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
}

func probeVLANFiltering() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "probe0"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	if err := netlink.BridgeSetVlanFiltering(bridge, true); err != nil {
		return err
	}
	link, err := netlink.LinkByName("probe0")
	if err != nil {
		return err
	}
	if on := link.(*netlink.Bridge).VlanFiltering; on == nil || !*on {
		return errWithoutEffect
	}
	return nil
}

func probeSCTP() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
