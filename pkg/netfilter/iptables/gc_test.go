package iptables

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestGC(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		other := plugin.Key{Network: "other", ContainerID: "a", IfName: "eth0"}
		for _, a := range []struct {
			key      plugin.Key
			ip, port string
		}{
			{keyOf("a"), "10.88.0.2", "8802"}, {second("a", "eth1"), "10.88.0.4", "8804"}, {keyOf("b"), "10.88.0.3", "8803"}, {other, "10.99.0.2", "9902"},
		} {
			n.do(t, func() error { return New().AddMasquerade(ctx, a.key, prefixes(a.ip+"/16")) })
			n.do(t, func() error { return New().AddPortMaps(ctx, a.key, publish(t, "tcp/"+a.port+"="+a.ip+":80")) })
			n.do(t, func() error { return New().AddForward(ctx, a.key, netfilter.Forward{Addrs: addrs(a.ip)}) })
		}
		valid := []plugin.Key{second("a", "eth1")}
		for range 2 {
			n.do(t, func() error { return New().GCMasquerade(ctx, "net", valid) })
			n.do(t, func() error { return New().GCPortMaps(ctx, "net", valid) })
			n.do(t, func() error { return New().GCForward(ctx, "net", valid) })
			all := n.rules(t, &ipv4, "nat") + n.rules(t, &ipv4, "filter") + n.kept(t)
			for _, gone := range []string{"10.88.0.2", "10.88.0.3", "8802", "8803"} {
				if strings.Contains(all, gone) {
					t.Errorf("%s is still there:\n%s", gone, all)
				}
			}
		}
		n.do(t, func() error { return New().CheckMasquerade(ctx, second("a", "eth1"), prefixes("10.88.0.4/16")) })
		n.do(t, func() error {
			return New().CheckPortMaps(ctx, second("a", "eth1"), publish(t, "tcp/8804=10.88.0.4:80"))
		})
		n.do(t, func() error { return New().CheckForward(ctx, other, netfilter.Forward{Addrs: addrs("10.99.0.2")}) })
		n.do(t, func() error { return New().CheckMasquerade(ctx, other, prefixes("10.99.0.2/16")) })
	})
}

// What no record tells of is known by the comments.
func TestGCWithoutRecords(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		sn := PortMapping.chains(keyOf("a"))[1]
		for i, id := range []string{"a", "b", "c"} {
			ip := "10.88.0." + string(rune('2'+i))
			n.do(t, func() error { return New().AddMasquerade(ctx, keyOf(id), prefixes(ip+"/16")) })
			n.do(t, func() error {
				return New().AddPortMaps(ctx, keyOf(id), publish(t, "tcp/808"+string(rune('0'+i))+"="+ip+":80"))
			})
		}
		n.restore(t, "nat", "-N CNI-HOSTPORT-SNAT", "-N "+sn, "-A CNI-HOSTPORT-SNAT -m comment --comment \"snat name: \\\"net\\\" id: \\\"a\\\"\" -j "+sn,
			"-A "+sn+" -s 127.0.0.1/32 -j MASQUERADE")
		n.MustRun(t, "rm", ownersFile)
		for _, network := range []string{"ne", "net2", "net"} { // the first two have nothing
			n.do(t, func() error { return New().GCMasquerade(ctx, network, []plugin.Key{keyOf("b")}) })
			n.do(t, func() error { return New().GCPortMaps(ctx, network, []plugin.Key{keyOf("b")}) })
			got := n.rules(t, &ipv4, "nat")
			if there := strings.Contains(got, "10.88.0.2"); there != (network != "net") {
				t.Errorf("after GC of %s:\n%s", network, got)
			}
		}
		got := n.rules(t, &ipv4, "nat")
		if strings.Contains(got, sn) || strings.Contains(got, "10.88.0.4") {
			t.Errorf("left over:\n%s", got)
		}
		n.do(t, func() error { return New().CheckMasquerade(ctx, keyOf("b"), prefixes("10.88.0.3/16")) })
		n.do(t, func() error { return New().CheckPortMaps(ctx, keyOf("b"), publish(t, "tcp/8081=10.88.0.3:80")) })
	})
}

// A chain of an old version goes with DEL, too.
func TestOldPortMaps(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		sn := PortMapping.chains(keyOf("a"))[1]
		n.restore(t, "nat", "-N CNI-HOSTPORT-SNAT", "-N "+sn, "-A CNI-HOSTPORT-SNAT -j "+sn)
		n.portmap(t, "a", publish(t, "tcp/8080=10.88.0.2:80"))
		n.unmap(t, keyOf("a"))
		if got := n.rules(t, &ipv4, "nat"); strings.Contains(got, sn) || strings.Contains(got, portsPrefix) {
			t.Errorf("left over:\n%s", got)
		}
	})
}

func TestWithoutPrograms(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.do(t, New().Available)
		n.do(t, func() error { return New().AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/16")) })
		back := n.hidePrograms(t)
		defer back()
		wantError(t, n.try(New().Available), "no program iptables-restore in PATH", "package iptables")
		add := func() error { return New().AddPortMaps(ctx, keyOf("b"), publish(t, "tcp/8080=10.88.0.2:80")) }
		wantError(t, n.try(add), "no program iptables-restore in PATH", "backend nftables")
		del := func() error { return New().DelMasquerade(ctx, keyOf("a"), nil) }
		wantError(t, n.try(del), "no program iptables-"+n.flavour+"-restore in PATH")
		if kept := n.kept(t); strings.Contains(kept, "ports") {
			t.Errorf("left of an ADD that failed: %s", kept)
		}
	})
}

// A program that hangs is ended with the call, and what was done is undone.
func TestHangingProgram(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "ip6tables-restore"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755))
		save, err := exec.LookPath("ip6tables-save")
		must(t, err)
		must(t, os.Symlink(save, filepath.Join(dir, "ip6tables-save")))
		t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
		late, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		ports := publish(t, "tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80")
		err = n.try(func() error { return New().AddPortMaps(late, keyOf("a"), ports) })
		wantError(t, err, "ip6tables-restore", context.DeadlineExceeded.Error())
		same(t, "left over", n.kept(t)+containers(n.rules(t, &ipv4, "nat")), "")
	})
}

// A program that hangs with iptables' lock is named after a while. nft has none.
func TestLocked(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for iptables to give up")
	}
	eachFlavour(t, func(t *testing.T, n *node) {
		if n.flavour != "legacy" {
			return
		}
		n.Do(func() {
			f, err := os.OpenFile("/run/xtables.lock", os.O_CREATE|os.O_RDONLY, 0o600)
			must(t, err)
			defer f.Close()
			must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
			err = New().AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/16"))
			wantError(t, err, "another process held the lock of iptables for 10 seconds", "/run/xtables.lock")
			if plugin.AsError(err).Code != types.ErrTryAgainLater {
				t.Errorf("code %d", plugin.AsError(err).Code)
			}
		})
		same(t, "left over", n.rules(t, &ipv4, "nat")+n.kept(t), "")
	})
}

// An ADD that was killed anywhere is removed by DEL: what it had written down
// and not yet made, or made.
func TestKilledAdd(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		ports := publish(t, "tcp/8080=10.88.0.2:80")
		n.portmap(t, "a", ports)
		before := n.rules(t, &ipv4, "nat")
		n.unmap(t, keyOf("a"))
		n.Do(func() {
			must(t, writeOwned(ownedBy(owner{"ports", keyOf("a")}, PortMaps(keyOf("a"), ports).own)))
		})
		n.portmap(t, "b", publish(t, "tcp/8080=10.88.0.3:80")) // the port is not taken
		n.unmap(t, keyOf("b"))
		n.portmap(t, "a", ports) // an ADD again
		same(t, "nat", sorted(n.rules(t, &ipv4, "nat")), sorted(before))
		n.unmap(t, keyOf("a"))
		same(t, "left over", n.kept(t), "")
	})
}

func ownedBy(o owner, rules []rule) []rule {
	for i := range rules {
		rules[i].owner = o
	}
	return rules
}

// What is written is read again, and nothing else.
func TestOwners(t *testing.T) {
	netlab.NewHost(t).Do(func() {
		must(t, os.MkdirAll(filepath.Dir(ownersFile), 0o755))
		w := Forward(netfilter.Forward{Addrs: addrs("10.88.0.2", "fd00::2"), Ingress: netfilter.Isolated, Bridge: "br0"})
		for i := range w.own {
			w.own[i].common = false // which need not be known any more
		}
		list := append(ownedBy(owner{"forward", keyOf("a")}, w.own),
			ownedBy(owner{"ports", second("a", "eth1")}, PortMaps(keyOf("a"), publish(t, "tcp/192.0.2.1:80=10.88.0.2:80")).own)...)
		must(t, writeOwned(list))
		again, err := readOwned()
		must(t, err)
		if !slices.Equal(list, again) {
			t.Errorf("read %v, want %v", again, list)
		}
		must(t, os.WriteFile(ownersFile, []byte("\nforward net\n\n"), 0o644))
		if again, err := readOwned(); err != nil || len(again) != 0 {
			t.Errorf("read %v %v", again, err)
		}
		must(t, writeOwned(nil))
		must(t, writeOwned(nil))
	})
}
