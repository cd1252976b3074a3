package sysctl_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/sysctl"
)

// BenchmarkFirstUse sets a sysctl of a namespace in which none was used before,
// by /proc/sys and as Open finds best, with more and more other namespaces in
// which it was used. It takes root.
//
//	go test ./pkg/sysctl -run - -bench FirstUse -benchtime 50x
func BenchmarkFirstUse(b *testing.B) {
	const key = "net/ipv4/conf/lo/arp_filter"
	var others []*os.File
	defer func() {
		for _, ns := range others {
			ns.Close()
		}
	}()
	proc := func() error {
		fd, err := unix.Open("/proc/sys/"+key, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Write(fd, []byte("1\n"))
		return err
	}
	open := func() error { return sysctl.Set(key, "1") }
	for _, many := range []int{0, 500, 1000, 2000} {
		for len(others) < many {
			others = append(others, inNew(b, proc))
		}
		for _, way := range []struct {
			name string
			use  func() error
		}{{"proc", proc}, {"open", open}} {
			b.Run(fmt.Sprintf("namespaces=%d/%s", many, way.name), func(b *testing.B) {
				took := make([]time.Duration, b.N)
				for i := range took {
					inNew(b, func() error {
						start := time.Now()
						defer func() { took[i] = time.Since(start) }()
						return way.use()
					}).Close()
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[b.N/2].Nanoseconds())/1000, "median-us")
				b.ReportMetric(0, "ns/op") // has the namespace's making in it
			})
		}
	}
}

// inNew calls f in a new network namespace.
func inNew(b *testing.B, f func() error) *os.File {
	b.Helper()
	var ns *os.File
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return ns
}
