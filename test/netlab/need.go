package netlab

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Feature is something a kernel may lack: a probe returns an error that isUnsupported knows, then.
type Feature struct {
	name  string
	probe func() error
}

// The features that tests need and that not every kernel has.
var (
	Dummy = Feature{"dummy links", func() error {
		node, err := newNode(func() error { return runIP("link add probe0 type dummy") })
		if err == nil {
			node.close()
		}
		return err
	}}
	SCTP = Feature{"SCTP sockets", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}}
)

// Need skips the test when the kernel lacks the feature, and fails it when that can't be found out.
func Need(t testing.TB, feature Feature) {
	t.Helper()
	if !Has(t, feature) {
		t.Skipf("this kernel has no %s", feature.name)
	}
}

// Has reports whether the kernel has the feature, and fails the test when that can't be found out.
func Has(t testing.TB, feature Feature) bool {
	t.Helper()
	err := feature.probe()
	if err != nil && !isUnsupported(err) {
		t.Fatalf("find out whether the kernel has %s: %v", feature.name, err)
	}
	return err == nil
}

// isUnsupported reports whether the kernel says that it lacks something, by itself or through ip.
func isUnsupported(err error) bool {
	for _, no := range []error{unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT} {
		if strings.Contains(strings.ToLower(err.Error()), no.Error()) {
			return true
		}
	}
	return strings.Contains(err.Error(), "Unknown device type")
}
