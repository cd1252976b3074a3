package link

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestRoutesOver: of very many routes no more are kept than a caller can bear, and those that are not wanted are no burden.
func TestRoutesOver(t *testing.T) {
	host := netlab.NewHost(t)
	var batch strings.Builder
	batch.WriteString("link add b0 type bridge\nlink set b0 up\n")
	for i := range mostKept + 1 {
		fmt.Fprintf(&batch, "route add 10.0.%d.%d dev b0\n", i>>8, i&255)
	}
	host.Feed(t, batch.String(), "ip", "-batch", "-")
	isOne := func(r netlink.Route) bool { return r.Dst.IP.String() == "10.0.0.1" }
	isAny := func(netlink.Route) bool { return true }
	host.Do(func() {
		l, err := netlink.LinkByName("b0")
		if err != nil {
			t.Fatal(err)
		}
		if list, err := RoutesOver(t.Context(), &netlink.Handle{}, l.Attrs().Index, isOne); err != nil || len(list) != 1 {
			t.Errorf("one of many: %v, %v", list, err)
		}
		if list, err := RoutesOver(t.Context(), &netlink.Handle{}, l.Attrs().Index, isAny); err == nil {
			t.Errorf("%d routes are kept", len(list))
		}
	})
}
