package netlab

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

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
	// NFTables is what the plugins and firewalld use of nf_tables.
	NFTables = feature("nf_tables for IP", func() (bool, error) {
		return scriptLacks("not supported", "nft 'add table inet probe; add chain inet probe nat { type nat hook output priority 0; }'")
	})
	// BroadcastQueue is a macvlan's, whose length can be set.
	BroadcastQueue = feature("bcqueuelen", func() (bool, error) {
		return scriptLacks("no bcqueuelen", "ip link add base0 type bridge; ip link add probe0 link base0 type macvlan bcqueuelen 200\n"+
			"ip -d link show probe0 | grep bcqueuelen || { echo no bcqueuelen; exit 1; }")
	})
	MovingAltNames = feature("alternative names that move with their device", func() (bool, error) {
		return scriptLacks("does not exist", "mount -n -t tmpfs probe /run; ip netns add probe; ip link add probe0 type veth peer name other0\n"+
			"ip link property add dev probe0 altname probealt; ip link set probe0 netns probe; ip -n probe link show probealt")
	})
	// Cookie tells a network namespace from those before it that had its inode.
	Cookie = feature("cookies of network namespaces", func() (bool, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return false, err
		}
		_, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return errors.Is(err, unix.ENOPROTOOPT), errors.Join(err, unix.Close(fd))
	})
	BridgeNetfilter = feature("br_netfilter", func() (bool, error) {
		_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
		return errors.Is(err, fs.ErrNotExist), err
	})
	// Shaping is what limits bandwidth.
	Shaping = feature("ifb, tbf, ingress, u32 and mirred", func() (bool, error) {
		node, err := newNode(func() error {
			return errors.Join(runIP("link add probe0 type ifb"), runBatch("tc", "qdisc add dev lo root tbf rate 1mbit burst 10kb latency 25ms",
				"qdisc add dev lo ingress", "filter add dev lo parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev probe0"))
		})
		if err != nil {
			return shapingLacks.MatchString(err.Error()), err
		}
		node.close()
		return false, nil
	})
	// Hardware is network devices that tests may have for themselves: scripts/guest.sh gives them to guests, and has their names in a
	// variable.
	Hardware = feature("network devices to spare", func() (bool, error) { return os.Getenv(HardwareVariable) == "", nil })
	// Guest is a machine that is the tests' alone, which has Hardware, with nf_tables. A network namespace of a machine can't set the limit of connections that
	// are tracked, for one, which is all namespaces': that is looked at, so that a kernel in which it can says so.
	Guest = feature("machine of the tests' own, whose limit of connections can be set", func() (bool, error) {
		if lacks, err := Hardware.probe(); lacks || err != nil {
			return lacks, err
		}
		if lacks, err := NFTables.probe(); lacks || err != nil {
			return lacks, err
		}
		return false, limitIsShared()
	})
	TimeNamespace = feature("time namespaces", func() (bool, error) {
		_, err := os.Stat("/proc/self/ns/time")
		return errors.Is(err, fs.ErrNotExist), err
	})
	// Users are more than the one that a user namespace of an ordinary user has: dbus-daemon becomes another.
	Users = feature("users but root", func() (bool, error) {
		cmd := exec.Command("true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1, NoSetGroups: true}}
		err := cmd.Run()
		return errors.Is(err, unix.EINVAL), err
	})
	// BPF is what only root of the machine may load.
	BPF = feature("BPF programs for this user", func() (bool, error) {
		fd, err := LoadXDP()
		if err != nil {
			return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS), err
		}
		return false, unix.Close(fd)
	})
	SCTP = feature("sctp", func() (bool, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT), err
		}
		return false, unix.Close(fd)
	})
)

// limitIsShared finds out by a namespace that tracks connections whether it can set their limit.
func limitIsShared() error {
	node, err := newNode(func() error {
		if _, err := output("nft", "add table inet probe; add chain inet probe f { type filter hook input priority 0; }; add rule inet probe f ct state new accept"); err != nil {
			return err
		}
		file, err := os.OpenFile("/proc/sys/net/netfilter/nf_conntrack_max", os.O_WRONLY, 0)
		if err == nil {
			return errors.Join(errors.New("a network namespace can set nf_conntrack_max for itself: this test is no more needed in a guest"), file.Close())
		}
		if !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	})
	if err == nil {
		node.close()
	}
	return err
}

// HardwareVariable is the variable of the environment for Hardware.
const HardwareVariable = "CNIBOX_HARDWARE"

// shapingLacks matches the words by which ip and tc say that the kernel does not have something.
var shapingLacks = regexp.MustCompile("Unknown device type|qdisc kind is unknown|TC classifier not found|Failed to load TC action module")

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

// scriptLacks is the same for a shell script.
func scriptLacks(words, script string) (bool, error) {
	node, err := newNode(func() error {
		_, err := capture(exec.Command("sh", "-ec", script), (*exec.Cmd).Run)
		return err
	})
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

// LoadXDP loads a program that drops what a device receives, and returns its descriptor.
func LoadXDP() (int, error) {
	code := []uint64{0x1_0000_00b7, 0x95} // r0 = XDP_DROP; exit
	license := []byte("GPL\x00")
	program := struct {
		kind, length  uint32
		code, license unsafe.Pointer
		more          [12]uint64
	}{kind: unix.BPF_PROG_TYPE_XDP, length: uint32(len(code)), code: unsafe.Pointer(&code[0]), license: unsafe.Pointer(&license[0])}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&program)), unsafe.Sizeof(program))
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
