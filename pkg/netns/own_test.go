package netns_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/netns/netnstest"
	"github.com/cnibox/cnibox/test/seccomp"
)

// onThread calls f on a thread that f may spoil: it ends with f.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// withoutProc leaves the calling thread without /proc.
func withoutProc(t *testing.T) {
	t.Helper()
	if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(t.TempDir())); err != nil {
		t.Error(err)
	}
}

// forbidAskingSockets refuses SIOCGSKNS to the calling thread, as kernels before
// 4.10 do.
func forbidAskingSockets(t *testing.T) {
	t.Helper()
	if err := seccomp.RefuseRequest(unix.SIOCGSKNS, unix.ENOTTY); err != nil {
		t.Error(err)
	}
}

// The two ways to the thread's own namespace: each alone is enough.
func TestOwnEitherWay(t *testing.T) {
	home, other := current(t), netnstest.New(t)
	tests := []struct {
		name string
		lack func(*testing.T)
	}{
		{"without procfs", withoutProc},
		{"without SIOCGSKNS", forbidAskingSockets},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := descriptors(t)
			onThread(func() {
				other, err := netns.Open(netnstest.Path(other))
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				tt.lack(t)
				if got := current(t); got != home {
					t.Errorf("Own is %v, want %v", got, home)
				}
				if own, err := other.IsOwn(); own || err != nil {
					t.Errorf("IsOwn of another: %v, %v", own, err)
				}
				err = other.Run(func() error {
					if own, err := other.IsOwn(); !own || err != nil {
						t.Errorf("inside: IsOwn = %v, %v; want true", own, err)
					}
					return nil
				})
				if err != nil {
					t.Error("Run:", err)
				}
				if got := current(t); got != home {
					t.Errorf("after Run: in %v, want %v", got, home)
				}
			})
			if after := descriptors(t); after != before {
				t.Errorf("%d open files before, %d after", before, after)
			}
		})
	}
}

func TestOwnFails(t *testing.T) {
	other := netnstest.New(t)
	onThread(func() {
		forbidAskingSockets(t)
		withoutProc(t)
		called := false
		_, err := netns.Own()
		_, errIs := other.IsOwn()
		errRun := other.Run(func() error { called = true; return nil })
		for _, err := range []error{err, errIs, errRun} {
			if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "open own network namespace /proc/thread-self/ns/net") {
				t.Errorf("error %v", err)
			}
		}
		if called {
			t.Error("Run called the function")
		}
	})
}

// A process in a user namespace of its own may enter the network namespaces
// made there, and not come back to the host's.
func TestRunWithoutPowerOverTheHost(t *testing.T) {
	const variable = "NETNS_TEST_ROOTLESS"
	if os.Getenv(variable) == "" {
		again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), variable+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		}
		out, err := again.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in a user namespace: %v\n%s", err, out)
		}
		return
	}
	home, ns := current(t), netnstest.New(t)
	failure := errors.New("the function's own")
	for range 3 {
		err := ns.Run(func() error {
			if got := current(t); got != ns.ID() {
				t.Errorf("in %v, want %v", got, ns.ID())
			}
			return failure
		})
		if err != failure {
			t.Errorf("error %v", err)
		}
		if got := current(t); got != home {
			t.Fatalf("after Run: in %v, want %v", got, home)
		}
	}
	defer func() {
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "a bug, in network namespace ") || !strings.Contains(text, "own_test.go") {
			t.Errorf("panic %q, want the function's own with its place", text)
		}
	}()
	_ = ns.Run(func() error { panic("a bug") })
}
