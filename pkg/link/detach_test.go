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
)

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
			if verdict := host.startDeletion(pair.Host, time.Minute, echoes); verdict != deleted {
				t.Errorf("round %d: verdict %d", round, verdict)
			}
			for _, s := range []*space{host, container} {
				links, err := s.List()
				if err != nil || slices.ContainsFunc(links, func(l *Link) bool { return l.Kind == "veth" }) {
					t.Errorf("round %d: links %+v, %v", round, links, err)
				}
			}
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
				if verdict := c.startDeletion(pair.Host, time.Minute, echoes); verdict != deleted {
					t.Errorf("link %d: verdict %d", pair.Host, verdict)
				}
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
			err := host.detach(pair.Host, time.Minute)
			container.ns.Close()
			if err != nil {
				t.Error(err)
			}
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
		name  string
		index int
		want  error
	}{
		{"no such link", 4711, ErrNotFound},
		{"not to be deleted", lo.Index, unix.EOPNOTSUPP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			within(t, host, func() {
				if verdict := host.startDeletion(tt.index, time.Minute, echoes); verdict != refused {
					t.Errorf("verdict %d, want a refusal", verdict)
				}
				err := host.detach(tt.index, time.Minute)
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

// awaitOrphans waits until this process has no children.
func awaitOrphans(t *testing.T) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == unix.ECHILD {
			return
		}
	}
	t.Error("an orphan does not end")
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
		if verdict := host.startDeletion(index, time.Minute, echoes); verdict != refused {
			t.Errorf("verdict %d, want a refusal", verdict)
		}
		awaitOrphans(t)
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

// What is not heard in time is done again, and it does not matter who is first.
func TestDeleteDetachedUnheard(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	within(t, host, func() {
		for range 10 {
			pair := wire(t, host, container)
			if err := host.detach(pair.Host, 0); err != nil {
				t.Error(err)
			}
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
	ways := map[string]func(c *Conn, index int) error{
		"synchronous": (*Conn).Delete,
		"detached":    func(c *Conn, index int) error { return c.detach(index, time.Minute) },
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
					failed := way(host.Conn, pair.Host)
					b.StopTimer()
					if err := errors.Join(err, failed); err != nil {
						b.Error(err)
						return
					}
					b.StartTimer()
				}
			})
		})
	}
}
