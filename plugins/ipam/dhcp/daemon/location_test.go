package daemon

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// TestReusedInode: a container whose namespace has the inode of one before it is another one.
func TestReusedInode(t *testing.T) {
	host := netlab.NewHost(t)
	pod, other := host.NewPod(t, "web"), host.NewPod(t, "db")
	for _, p := range []*netlab.Pod{pod, other} {
		p.MustRun(t, "ip", "link", "add", "eth0", "type", "bridge")
	}
	hasCookies := netlab.Has(t, netlab.Cookie)
	nothing := func(netlink.Link) error { return nil }
	host.Do(func() {
		now, err := findLocation(pod.Path(), "eth0")
		if err != nil {
			t.Error(err)
			return
		}
		before, err := parseLocation(now.path, now.document())
		if err != nil || before.cookie != now.cookie || !before.isSame(now) || before.enter(nothing) != nil {
			t.Errorf("%+v is not %+v: %v", before, now, err)
		}
		another, err := findLocation(other.Path(), "eth0")
		if err != nil || another.cookie == now.cookie && hasCookies {
			t.Errorf("%+v has the cookie of %+v: %v", another, now, err)
		}
		before.cookie++
		if err := before.enter(nothing); !errors.Is(err, errGone) || before.isSame(now) {
			t.Errorf("another one is entered: %v", err)
		}
		before.cookie = 0
		if err := before.enter(nothing); err != nil || !before.isSame(now) {
			t.Errorf("one of a daemon that noted no cookie: %v", err)
		}
	})
}
