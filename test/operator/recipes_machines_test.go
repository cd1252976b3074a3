package operator

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// newFlannelKitchen returns two nodes on one segment. flannel's daemon, with the backend host-gw, has leased each a subnet: its file, and a
// route to the other's. The daemon itself runs in test/multihost.
func newFlannelKitchen(t *testing.T, networks map[string]string) *kitchen {
	t.Helper()
	nodes := []*netlab.Host{netlab.NewHost(t), netlab.NewHost(t)}
	k := &kitchen{operator: &operator{t, nodes[0]}, dir: t.TempDir(), machines: map[string]*netlab.Namespace{}}
	nodes[0].MustRun(t, "ip", "link", "add", "eth0", "index", "1000", "type", "veth", "peer", "name", "eth0", "netns", nodes[1].NetnsPath())
	for i, host := range nodes {
		name, other := strconv.Itoa(i+1), strconv.Itoa(2-i)
		host.InstallPlugins(t, harmtest.Plugins...)
		host.MustRun(t, "sh", "-ec", fmt.Sprintf("ip address add 172.31.7.%[1]s/24 dev eth0; ip link set eth0 up; ip route add default via 172.31.7.254; "+
			"ip route add 10.244.%[2]s.0/24 via 172.31.7.%[2]s; mkdir /run/flannel; cat >/run/flannel/subnet.env <<END\n"+
			"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.%[1]s.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\nEND", name, other))
		k.serve(host, networks)
		k.machines["node"+name] = &host.Namespace
	}
	return k
}

// startGuest stands for a virtual machine: a program that holds the tap which the command names, with a network namespace behind it as the
// machine "guest", whose eth0 is on the other side.
func (k *kitchen) startGuest(command string) {
	k.Helper()
	words := regexp.MustCompile(`^ip netns exec (\w+) .*ifname=(\w+)`).FindStringSubmatch(command)
	if words == nil {
		k.Fatalf("%s: no namespace, or no tap", command)
	}
	guest := k.host.NewPod(k, "guest")
	guest.SetLoopbackUp(k)
	k.machines["guest"] = &guest.Namespace
	outer := k.holdTap(&k.host.Namespace, "/run/netns/"+words[1], words[2])
	inner := k.holdTap(&guest.Namespace, "", "eth0")
	for _, pair := range [][2]*os.File{{outer, inner}, {inner, outer}} {
		go func() {
			frame := make([]byte, 1<<16)
			for {
				n, err := pair[0].Read(frame)
				if err != nil {
					return // the test has ended
				}
				_, _ = pair[1].Write(frame[:n]) // a link that is down yet takes nothing
			}
		}()
	}
}

// holdTap opens a tap, of the namespace at a path if there is one.
func (k *kitchen) holdTap(in *netlab.Namespace, path, name string) (file *os.File) {
	k.Helper()
	in.Do(func() {
		if path != "" {
			netns, err := os.Open(path)
			if err != nil {
				k.Fatal(err)
			}
			defer netns.Close()
			if err := unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET); err != nil {
				k.Fatal(err)
			}
		}
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			k.Fatal(err)
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			k.Fatal(err)
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			k.Fatalf("hold %s: %v", name, err)
		}
		file = os.NewFile(uintptr(fd), name)
	})
	k.Cleanup(func() { _ = file.Close() })
	return file
}
