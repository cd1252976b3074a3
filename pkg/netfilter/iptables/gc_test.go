package iptables

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/test/netlab"
)

// What no record tells of is known by its comments, also in a chain of an old version of the reference plugin. It goes with the GC of its network alone.
func TestGCWithoutRecords(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		old := owner{PortMapping, keyOf("a")}.chains()[1]
		n.restore(t, "nat", "-N CNI-HOSTPORT-SNAT", "-N "+old, "-A CNI-HOSTPORT-SNAT -m comment --comment \"snat name: \\\"net\\\" id: \\\"a\\\"\" -j "+old,
			"-A "+old+" -s 127.0.0.1/32 -j MASQUERADE")
		n.add(t, MasqueradeRules(keyOf("a"), prefixes("10.88.0.2/16")))
		n.MustRun(t, "rm", state.RunFile(ownersFile))
		for _, network := range []string{"ne", "net2", "net"} { // the first two have nothing
			n.gc(t, network, keyOf("b"))
			for what, has := range map[string]bool{"an old chain": lines(n.rules(t, &ipv4, "nat"), old) != "", "a rule": lines(n.rules(t, &ipv4, "nat"), "10.88.0.2") != ""} {
				if has != (network != "net") {
					t.Errorf("after GC of %s there is %s of a: %v", network, what, has)
				}
			}
		}
	})
}

// A note is all that is left once somebody else has removed every rule.
func TestNotes(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		for _, name := range []string{"masquerade", "ports", "forward"} {
			r := kinds(t, keyOf("a"))[name]
			expect := func(want bool, left int) {
				t.Helper()
				is := false
				err := n.try(func() (err error) {
					is, err = r.owner.kind.IsNote(ctx, plugin.Held{Key: keyOf("a")})
					return err
				})
				if err != nil || is != want {
					t.Errorf("%s, %d rules left: a note: %v, %v", name, left, is, err)
				}
			}
			expect(false, 0) // nothing is written down
			n.add(t, r)
			own := missing(r.own, nil)
			for i, o := range own {
				expect(false, len(own)-i)
				n.MustRun(t, o.family.program+"-"+n.flavour, append([]string{"-t", r.owner.kind.table()}, words(o.remove())...)...)
			}
			expect(true, 0)
		}
	})
}

func TestWithoutPrograms(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		must(t, n.try(func() error { return on(t).Available(false) }))
		n.add(t, MasqueradeRules(keyOf("a"), prefixes("10.88.0.2/16")))
		defer n.hidePrograms(t)()
		wantError(t, n.try(func() error { return on(t).Available(false) }), "no program iptables-restore in PATH", "package iptables")
		err := n.tryAdd(t, PortMapRules(keyOf("b"), publish(t, "tcp/8080=10.88.0.2:80")))
		wantError(t, err, "no program iptables-restore in PATH", "backend nftables")
		err = n.try(func() error {
			_, err := on(t).Del(ctx, Masquerading, keyOf("a"), nil)
			return err
		})
		wantError(t, err, "no program iptables-"+n.flavour+"-restore in PATH")
		same(t, "left of an ADD that failed", lines(n.kept(t), "ports"), "")
	})
}

// A program that hangs is ended with the call, and what was done is undone: that of the batch, and that which the library asks for its version first.
func TestHangingProgram(t *testing.T) {
	for _, program := range []string{"ip6tables-restore", "iptables"} {
		eachFlavour(t, func(t *testing.T, n *node) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n: >"+filepath.Join(dir, "hangs")+"\nexec sleep infinity\n"), 0o755))
			save, err := exec.LookPath("ip6tables-save")
			must(t, err)
			must(t, os.Symlink(save, filepath.Join(dir, "ip6tables-save")))
			t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
			call, end := context.WithCancel(ctx)
			defer end()
			go func() {
				_ = netlab.Await(func() error {
					_, err := os.Stat(filepath.Join(dir, "hangs"))
					return err
				})
				end()
			}()
			ports := publish(t, "tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80")
			if program == "iptables" {
				ports.Inside = "lan0"
			}
			wantError(t, n.try(func() error { return on(t).Add(call, PortMapRules(keyOf("a"), ports)) }), program, context.Canceled.Error())
			same(t, "left over", n.kept(t)+lines(n.rules(t, &ipv4, "nat"), portsPrefix), "")
		})
	}
}

// A program that hangs with iptables' lock is named after a while. nft has none.
func TestLocked(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for iptables to give up")
	}
	n := newNode(t, "legacy")
	n.Do(func() {
		f, err := os.OpenFile("/run/xtables.lock", os.O_CREATE|os.O_RDONLY, 0o600)
		must(t, err)
		defer f.Close()
		must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
		err = on(t).Add(ctx, MasqueradeRules(keyOf("a"), prefixes("10.88.0.2/16")))
		wantError(t, err, "another process held the lock of iptables for 10 seconds", "/run/xtables.lock")
		if plugin.AsError(err).Code != types.ErrTryAgainLater {
			t.Errorf("code %d", plugin.AsError(err).Code)
		}
	})
	same(t, "left over", n.rules(t, &ipv4, "nat")+n.kept(t), "")
}

// An ADD that was killed anywhere is removed by DEL: what it had written down and not yet made, or made.
func TestKilledAdd(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		a, b := PortMapRules(keyOf("a"), publish(t, "tcp/8080=10.88.0.2:80")), PortMapRules(keyOf("b"), publish(t, "tcp/8080=10.88.0.3:80"))
		n.Do(func() {
			must(t, os.MkdirAll(state.RunDir(), 0o755))
			must(t, writeOwned(ownedBy(a)))
		})
		n.add(t, b) // the port is not taken
		n.del(t, PortMapping, keyOf("b"))
		n.add(t, a) // an ADD again
		n.has(t, "ADD", "nat", slices.Concat(a.shared, a.own)...)
		n.del(t, PortMapping, keyOf("a"))
		same(t, "records", n.kept(t), "")
	})
}

func ownedBy(r Rules) (list []rule) {
	for _, o := range r.own {
		o.owner, o.common = r.owner, false // which need not be known any more
		list = append(list, o)
	}
	return list
}

// What is written is read again, and nothing else.
func TestOwners(t *testing.T) {
	netlab.NewHost(t).Do(func() {
		must(t, os.MkdirAll(state.RunDir(), 0o755))
		list := append(ownedBy(kinds(t, keyOf("a"))["published"]), ownedBy(PortMapRules(second("a", "eth1"), publish(t, "tcp/192.0.2.1:80=10.88.0.2:80")))...)
		wantOwned := func() {
			t.Helper()
			if again, err := readOwned(); err != nil || !slices.Equal(list, again) {
				t.Errorf("read %v %v, want %v", again, err, list)
			}
		}
		must(t, writeOwned(list))
		wantOwned()
		list = nil
		must(t, os.WriteFile(state.RunFile(ownersFile), []byte("\nforward net\n"+`{"network":"net","kind":"forward","ipv4":["-A CHAIN"]}`+"\n\n"), 0o644))
		wantOwned()
		must(t, writeOwned(nil))
		wantOwned()
	})
}
