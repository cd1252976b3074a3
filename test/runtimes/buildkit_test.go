package runtimes

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// buildKitPool has BuildKit keep so many namespaces attached to the network of /etc/cni/net.d.
func buildKitPool(size int) string {
	return fmt.Sprintf(`networkMode = "cni"
  cniConfigPath = "%s"
  cniBinaryPath = "%s"
  cniPoolSize = %d`, buildKitNetwork, netlab.PluginDir, size)
}

var buildKitNetwork = conflistFile

// TestBuildKit builds images on BuildKit's own network, for which it finds plugins under names such as buildkit-cni-bridge and calls them by
// these; and with namespaces that it has made and attached before.
func TestBuildKit(t *testing.T) {
	tried(t, buildKitD, onePod)
	t.Run("bridge", func(t *testing.T) {
		n := newNode(t)
		for _, name := range []string{"bridge", "loopback", "host-local", "firewall"} {
			n.run(t, "ln", "-s", filepath.Join(netlab.PluginDir, name), filepath.Join(workDir, "buildkit-cni-"+name))
		}
		fresh := n.Snapshot(t)
		b := n.startBuildKit(t, `networkMode = "bridge"
  bridgeName = "`+bridgeName+`"
  bridgeSubnet = "`+podNetwork+`"`)
		b.build(t)
		b.build(t)
		b.stop(t)
		b.leaves(t, fresh, "file /var/lib/cni/networks/buildkit drwx", "file /var/lib/cni/networks/buildkit/lock ",
			"file /var/lib/cni/networks/buildkit/last_reserved_ip.0 ", "file /var/lib/cni/networks/.cnibox/buildkit")
	})
	t.Run("pool", func(t *testing.T) {
		n := newNode(t)
		fresh := n.Snapshot(t)
		b := n.startBuildKit(t, buildKitPool(4))
		for range 2 {
			if printed := b.build(t); !strings.Contains(printed, "somaxconn is "+somaxconn) {
				t.Errorf("net.core.somaxconn of the step is not %s", somaxconn)
			}
		}
		b.awaitPool(t, 4)
		b.stop(t)
		b.hasRemovedAll(t)
		b.leaves(t, fresh)
	})
}

func TestBuildKitFifty(t *testing.T) {
	tried(t, buildKitD, fifty)
	n := newNode(t)
	fresh := n.Snapshot(t)
	b := n.startBuildKit(t, buildKitPool(4))
	build := b.begin(t, 50)
	build.await(t)
	build.end(t)
	b.stop(t)
	b.hasRemovedAll(t)
	b.leaves(t, fresh)
}

// TestBuildKitKilled kills BuildKit while it builds and fills its pool, and while it empties it. When it starts again, it calls DEL for all that
// it had before, and GC has nothing to do. Nobody ends its steps.
func TestBuildKitKilled(t *testing.T) {
	tried(t, buildKitD, runtimeKilled)
	n := newNode(t)
	fresh, before := n.Snapshot(t), processes(t)
	b := n.startBuildKit(t, buildKitPool(200))
	build := b.begin(t, 3)
	build.await(t)
	endSteps := b.kill(t, before)
	_ = build.cmd.Wait()
	t.Logf("that was in the middle of its pool: it has called ADD %d times", b.called(t, "ADD"))
	if printed := n.run(t, netlab.Cnictl(t), "gc"); !strings.Contains(printed, "nothing to remove") {
		t.Errorf("what BuildKit is to remove has its namespaces still:\n%s", printed)
	}

	b.configure(t, buildKitPool(20))
	b.start(t)
	b.awaitPool(t, 20)
	for _, address := range build.addresses {
		if page, err := fetch(n.Namespace, address+":80", silence); err == nil {
			t.Errorf("a step has its network after DEL, and answers on %s: %q", address, page)
		}
	}
	b.build(t)
	removed := b.called(t, "DEL")
	if err := b.daemon.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, func() error {
		if b.called(t, "DEL") == removed {
			return errors.New("BuildKit does not empty its pool")
		}
		return nil
	})
	b.kill(t, before)
	t.Logf("it has %d namespaces left", len(b.attached(t)))

	b.configure(t, buildKitPool(1))
	b.start(t)
	b.awaitPool(t, 1)
	b.build(t)
	n.run(t, "sh", "-ec", `touch -d "5 minutes ago" /var/lib/cni/networks/web/* /var/lib/cni/results/*`)
	if printed := n.run(t, netlab.Cnictl(t), "gc"); !strings.Contains(printed, "nothing to remove") {
		t.Errorf("BuildKit has left something to GC:\n%s", printed)
	}
	b.stop(t)
	endSteps()
	b.hasRemovedAll(t)
	b.leaves(t, fresh, "link bkpx", "qdisc bkpx") // of its proxy, which has a pool, too, and does not look for what a kill has left of it
}

// TestBuildKitEdited edits and removes the network's file while a step runs, and edits it while BuildKit is not there. BuildKit reads it only
// when it starts.
func TestBuildKitEdited(t *testing.T) {
	tried(t, buildKitD, edited)
	n := newNode(t)
	fresh, before := n.Snapshot(t), processes(t)
	b := n.startBuildKit(t, buildKitPool(2))
	build := b.begin(t, 3)
	build.await(t)
	other := `{"cniVersion": "1.0.0", "name": "` + networkName + `", "plugins": [
	  {"type": "bridge", "bridge": "other0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}},
	  {"type": "` + observerName + `", "log": "` + observerLog + `"}]}`
	n.writeFile(t, buildKitNetwork, other)
	n.run(t, "rm", buildKitNetwork)
	build.end(t)
	b.stop(t)
	b.hasRemovedAll(t)
	n.writeFile(t, buildKitNetwork, n.conflist)
	b.leaves(t, fresh)

	b.start(t)
	b.awaitPool(t, 2)
	b.kill(t, before)
	n.writeFile(t, buildKitNetwork, other)
	b.start(t)
	b.awaitPool(t, 2)
	b.stop(t)
	b.hasRemovedAll(t)
	n.writeFile(t, buildKitNetwork, n.conflist)
	b.leaves(t, fresh, "link other0:", "qdisc other0:", "address other0:", "route ipv4 10.99.0.")
}

// TestBuildKitReboot moves what is on disk to another node, which has nothing else of the first one.
func TestBuildKitReboot(t *testing.T) {
	tried(t, buildKitD, reboot)
	off, before := newNode(t), processes(t)
	b := off.startBuildKit(t, buildKitPool(4))
	build := b.begin(t, 2)
	build.await(t)
	b.awaitPool(t, 4)
	b.kill(t, before)()
	_ = build.cmd.Wait()
	disk, err := off.Output(exec.Command("tar", "--create", "--directory=/", "srv", "var/lib/cni"))
	if err != nil {
		t.Fatal(err)
	}

	on := newNode(t)
	fresh := on.Snapshot(t)
	on.Feed(t, disk, "tar", "--extract", "--directory=/")
	on.run(t, "sh", "-ec", `touch -d "5 minutes ago" /var/lib/cni/networks/web/* /var/lib/cni/results/*`)
	if printed := on.run(t, netlab.Cnictl(t), "gc"); !strings.Contains(printed, "8 to remove") { // of four namespaces, each with lo
		t.Errorf("without BuildKit, GC would not remove what it had:\n%s", printed)
	}
	b.node = on
	b.start(t)
	b.awaitPool(t, 4)
	b.build(t)
	b.stop(t)
	b.hasRemovedAll(t)
	b.leaves(t, fresh)
}
