package link

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	field "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/test/seccomp"
)

// reap waits for an orphan that is still our child.
func reap(t testing.TB, pid int) {
	t.Helper()
	if pid == 0 {
		return
	}
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		t.Errorf("wait for orphan %d: %v", pid, err)
	}
}

// within runs f in a namespace, on a thread that ends with it.
func within(t testing.TB, s *space, f func()) {
	t.Helper()
	if err := inside(s, f); err != nil {
		t.Fatal(err)
	}
}

func inside(s *space, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(s.ns.FD(), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// eitherWay runs a test as on a kernel that echoes deletions, where this is one, and
// as on one that does not.
func eitherWay(t *testing.T, test func(t *testing.T, echoes bool)) {
	t.Run("listening", func(t *testing.T) { test(t, false) })
	t.Run("echo", func(t *testing.T) {
		if !echoesDeletions() {
			t.Skip("this kernel does not echo deletions")
		}
		test(t, true)
	})
}

// As soon as a detached deletion returns, both names are free and both ends are
// out of sight, though the orphan may be at it still.
func TestDeleteDetached(t *testing.T) { eitherWay(t, testDeleteDetached) }

func testDeleteDetached(t *testing.T, echoes bool) {
	host, container := newSpace(t), newSpace(t)
	bridge := host.bridge(t, "br0")
	within(t, host, func() {
		var orphans []int
		for round := range 60 {
			v := demoVeth(bridge)
			pair, err := host.CreateVeth(v, container.ns)
			if err != nil {
				t.Errorf("round %d: create: %v", round, err)
				break
			}
			if err := container.SetUp(pair.Container); err != nil {
				t.Error(err)
			}
			pid, verdict := host.startDeletion(pair.Host, time.Minute, echoes)
			if pid == 0 || verdict != deleted {
				t.Errorf("round %d: orphan %d, verdict %d", round, pid, verdict)
			}
			orphans = append(orphans, pid)
			for _, s := range []*space{host, container} {
				links, err := s.List()
				if err != nil || slices.ContainsFunc(links, func(l *Link) bool { return l.Kind == "veth" }) {
					t.Errorf("round %d: links %+v, %v", round, links, err)
				}
			}
		}
		for _, pid := range orphans {
			reap(t, pid)
		}
	})
}

// Many at once, each of which hears of all others where there is no echo.
func TestDeleteDetachedAtOnce(t *testing.T) { eitherWay(t, testDeleteDetachedAtOnce) }

func testDeleteDetachedAtOnce(t *testing.T, echoes bool) {
	host := newSpace(t)
	bridge := host.bridge(t, "br0")
	const many = 30
	done := make(chan error, many)
	for i := range many {
		container := newSpace(t)
		v := demoVeth(bridge)
		v.Host = fmt.Sprintf("veth%d", i)
		pair, err := host.CreateVeth(v, container.ns)
		if err != nil {
			t.Fatal(err)
		}
		c, err := OpenIn(host.ns)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			done <- inside(host, func() {
				pid, verdict := c.startDeletion(pair.Host, time.Minute, echoes)
				if verdict != deleted {
					t.Errorf("link %d: orphan %d, verdict %d", pair.Host, pid, verdict)
				}
				reap(t, pid)
			})
		}()
	}
	for range many {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The namespace may go at once, with the other end or with the listener.
func TestDeleteDetachedAndNamespace(t *testing.T) {
	host := newSpace(t)
	within(t, host, func() {
		for range 10 {
			container := newSpace(t)
			pair := wire(t, host, container)
			pid, err := host.detach(pair.Host, time.Minute)
			container.ns.Close()
			if err != nil {
				t.Error(err)
			}
			reap(t, pid)
		}
	})
}

func TestDeleteDetachedErrors(t *testing.T) { eitherWay(t, testDeleteDetachedErrors) }

func testDeleteDetachedErrors(t *testing.T, echoes bool) {
	host, container := newSpace(t), newSpace(t)
	pair := wire(t, host, container)
	lo, err := host.ByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		prepare func() error
		index   int
		want    error
	}{
		{"no such link", nil, 4711, ErrNotFound},
		{"not to be deleted", nil, lo.Index, unix.EOPNOTSUPP},
		{"not allowed", dropCapabilities, pair.Host, unix.EPERM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			within(t, host, func() {
				if tt.prepare != nil {
					if err := tt.prepare(); err != nil {
						t.Error(err)
					}
				}
				pid, verdict := host.startDeletion(tt.index, time.Minute, echoes)
				reap(t, pid)
				if pid == 0 || verdict != refused {
					t.Errorf("orphan %d, verdict %d; want a refusal", pid, verdict)
				}
				pid, err := host.detach(tt.index, time.Minute)
				reap(t, pid)
				if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("delete link %d", tt.index)) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
			})
		})
	}
	if _, err := host.ByIndex(pair.Host); err != nil {
		t.Errorf("the link: %v", err)
	}
}

// What the kernel says to an orphan is not taken for its answer to a deletion after that.
func TestDeleteAfterARefusal(t *testing.T) { eitherWay(t, testDeleteAfterARefusal) }

func testDeleteAfterARefusal(t *testing.T, echoes bool) {
	const index = 4711
	host := newSpace(t)
	within(t, host, func() {
		if _, err := host.ByName("lo"); err != nil { // so that the orphan's are not the socket's first messages
			t.Error(err)
		}
		pid, verdict := host.startDeletion(index, time.Minute, echoes)
		reap(t, pid)
		if verdict != refused {
			t.Errorf("verdict %d, want a refusal", verdict)
		}
		late := field.NewLinkAttrs()
		late.Name, late.Index = "late0", index
		if err := host.field.LinkAdd(&field.Bridge{LinkAttrs: late}); err != nil {
			t.Error(err)
		}
		if err := host.Delete(index); err != nil {
			t.Error("delete the link that is there now: ", err)
		}
	})
}

func dropCapabilities() error {
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &[]unix.CapUserData{{}, {}}[0])
}

// Where no process can be made the link goes the plain way.
func TestDeleteDetachedWithoutClone(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS, unix.ENOMEM} {
		host, container := newSpace(t), newSpace(t)
		pair := wire(t, host, container)
		within(t, host, func() {
			if err := seccomp.Refuse(unix.SYS_CLONE, errno); err != nil {
				t.Error(err)
				return
			}
			pid, err := host.detach(pair.Host, time.Minute)
			if pid != 0 || err != nil {
				t.Errorf("detach = %d, %v", pid, err)
			}
		})
		if _, err := host.ByIndex(pair.Host); !errors.Is(err, ErrNotFound) {
			t.Errorf("the link: %v", err)
		}
	}
}

// What is not heard in time is done again, and it does not matter who is first.
func TestDeleteDetachedUnheard(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	within(t, host, func() {
		for range 10 {
			pair := wire(t, host, container)
			pid, err := host.detach(pair.Host, 0)
			if err != nil {
				t.Error(err)
			}
			reap(t, pid)
			if _, err := host.ByIndex(pair.Host); !errors.Is(err, ErrNotFound) {
				t.Errorf("the link: %v", err)
			}
		}
	})
}

// The listener hears the end of its link and refusals, and of other links, of
// changes and of a port that leaves its bridge nothing.
func TestHearDeletion(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	bridge := host.bridge(t, "br0")
	pair, err := host.CreateVeth(demoVeth(bridge), container.ns)
	if err != nil {
		t.Fatal(err)
	}
	ears, err := OpenIn(host.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer ears.Close()
	if err := errors.Join(ears.hearDeletion(pair.Host), ears.Join(unix.RTNLGRP_LINK), ears.SetTimeout(time.Minute)); err != nil {
		t.Fatal(err)
	}
	other := host.bridge(t, "br1")
	err = errors.Join(
		host.SetMTU(pair.Host, 1300),
		host.field.LinkSetNoMaster(host.link(t, "veth0000c0de")),
		host.Delete(other),
		host.Delete(pair.Host),
	)
	if err != nil {
		t.Fatal(err)
	}
	var heard []uint16
	err = ears.Receive(func(m netlink.Message) bool {
		heard = append(heard, m.Type)
		return m.Type != unix.RTM_DELLINK
	})
	if err != nil || len(heard) != 1 {
		t.Errorf("heard %d, %v; want one RTM_DELLINK (%d)", heard, err, unix.RTM_DELLINK)
	}
	if err := ears.SetTimeout(0); err != nil {
		t.Fatal(err)
	}
	if err := ears.Receive(func(m netlink.Message) bool { heard = append(heard, m.Type); return true }); !errors.Is(err, unix.EAGAIN) || len(heard) != 1 {
		t.Errorf("heard %d after the end, %v", heard, err)
	}
}

// BenchmarkDelete deletes veth pairs in both ways. The next one is made only
// when the kernel is done with the last.
func BenchmarkDelete(b *testing.B) {
	ways := map[string]func(c *Conn, index int) (pid int, err error){
		"synchronous": func(c *Conn, index int) (int, error) { return 0, c.Delete(index) },
		"detached":    func(c *Conn, index int) (int, error) { return c.detach(index, time.Minute) },
	}
	for name, way := range ways {
		b.Run(name, func(b *testing.B) {
			host, container := newSpace(b), newSpace(b)
			v := demoVeth(host.bridge(b, "br0"))
			within(b, host, func() {
				for b.Loop() {
					b.StopTimer()
					pair, err := host.CreateVeth(v, container.ns)
					if err == nil {
						err = container.SetUp(pair.Container)
					}
					b.StartTimer()
					pid, failed := way(host.Conn, pair.Host)
					b.StopTimer()
					if err := errors.Join(err, failed); err != nil {
						b.Error(err)
						return
					}
					reap(b, pid)
					b.StartTimer()
				}
			})
		})
	}
}
