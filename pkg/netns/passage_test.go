package netns_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/netns/netnstest"
)

const forwarding = "/proc/sys/net/ipv4/ip_forward"

// visit makes each kind of call through a passage to ns, and looks where it was made.
func visit(t *testing.T, ns *netns.NS) {
	t.Helper()
	home := current(t)
	p, err := ns.Passage()
	if err != nil {
		t.Error(err)
		return
	}
	defer p.Close()
	fd, err := p.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	if got := spaceOf(t, fd); got != ns.ID() {
		t.Errorf("the socket is in %v, want %v", got, ns.ID())
	}
	here, _ := os.ReadFile(forwarding)
	if n, err := p.Write(unix.AT_FDCWD, forwarding, []byte("1\n")); n != 2 || err != nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	var b [16]byte
	if n, err := p.Read(unix.AT_FDCWD, forwarding, b[:]); string(b[:n]) != "1\n" || err != nil {
		t.Errorf("Read = %q, %v", b[:n], err)
	}
	if after, err := os.ReadFile(forwarding); string(after) != string(here) || err != nil {
		t.Errorf("what was written there changed it here from %q to %q, %v", here, after, err)
	}
	if _, err := p.Read(unix.AT_FDCWD, "/proc/sys/net/none", b[:]); err != unix.ENOENT {
		t.Errorf("Read of what is not there: %v", err)
	}
	if _, err := p.Write(unix.AT_FDCWD, "a\x00b", nil); err != unix.EINVAL {
		t.Errorf("Write to a path that is none: %v", err)
	}
	if got := current(t); got != home {
		t.Errorf("afterwards in %v, want %v", got, home)
	}
}

// spaceOf returns the namespace of a socket.
func spaceOf(t *testing.T, socket int) netns.ID {
	t.Helper()
	fd, err := unix.IoctlRetInt(socket, unix.SIOCGSKNS)
	if err != nil {
		t.Error("ask a socket for its namespace: ", err)
		return netns.ID{}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Error(err)
	}
	return netns.ID{Dev: uint64(st.Dev), Ino: st.Ino}
}

func TestPassage(t *testing.T) {
	ns := netnstest.New(t)
	before := descriptors(t)
	visit(t, ns)
	if after := descriptors(t); after != before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

// Goroutines that are not locked to their threads, with the runtime stopping them as often as it can: none may be moved to
// another thread while its own is away.
func TestPassageLeavesNoThreadBehind(t *testing.T) {
	spaces := []*netns.NS{netnstest.New(t), netnstest.New(t)}
	done := make(chan struct{})
	var collector, all sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
	for i := range 16 {
		all.Go(func() {
			for range 50 {
				visit(t, spaces[i%len(spaces)])
			}
		})
	}
	all.Wait()
	close(done)
	collector.Wait()
	wantNoStrays(t)
}

// What IsOwn found out serves the passages after it.
func TestPassageAfterIsOwn(t *testing.T) {
	ns, err := netns.Open(netnstest.Path(netnstest.New(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for range 3 {
		if own, err := ns.IsOwn(); own || err != nil {
			t.Fatalf("IsOwn: %v, %v", own, err)
		}
		visit(t, ns)
		visit(t, ns)
	}
	wantNoStrays(t)
}

func TestPassageToAClosedNamespace(t *testing.T) {
	ns := netnstest.New(t)
	p, err := ns.Passage()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ns.Close()
	if _, err := p.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil || !strings.Contains(err.Error(), "enter network namespace") {
		t.Errorf("Socket: %v", err)
	}
}

// A process in a user namespace of its own can't come back from where it goes, and sends a thread.
func TestPassageWithoutPowerOverTheHost(t *testing.T) {
	const variable = "NETNS_TEST_ROOTLESS"
	if os.Getenv(variable) != "" {
		ns := netnstest.New(t)
		for range 3 {
			visit(t, ns)
		}
		return
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), variable+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a user namespace: %v\n%s", err, out)
	}
}
