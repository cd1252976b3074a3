package watch

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestLostEvents(t *testing.T) {
	host := netlab.NewHost(t)
	host.MustRun(t, "ip", "link", "add", "demo0", "type", "bridge")
	var l *listener
	var err error
	host.Do(func() { l, err = listen(unix.NETLINK_ROUTE, groups, linkFilter(77), true) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.conn.Close()
	if err := l.conn.SetReadBuffer(1); err != nil { // of which the kernel makes its least
		t.Fatal(err)
	}
	for range 10 {
		host.MustRun(t, "ip", "addr", "add", "10.1.0.1/16", "dev", "demo0")
		host.MustRun(t, "ip", "addr", "del", "10.1.0.1/16", "dev", "demo0")
	}
	if _, _, err := l.read(); !errors.Is(err, errLost) {
		t.Fatalf("nothing was lost: %v", err)
	}
	host.MustRun(t, "ip", "link", "del", "demo0") // is heard of again, as the first
	b, nsid, err := l.read()
	if err != nil || nsid != hostNumber {
		t.Fatalf("of namespace %d: %v", nsid, err)
	}
	for m := range messages(b) {
		if m.kind != unix.RTM_DELLINK {
			t.Errorf("message %d", m.kind)
		}
	}
}
