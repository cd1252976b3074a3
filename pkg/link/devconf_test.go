package link

import (
	"os"
	"testing"
)

func TestRoutesLocalnet(t *testing.T) {
	s := newSpace(t)
	index := s.bridge(t, "b0")
	for _, value := range []string{"0", "1", "0"} {
		err := s.ns.Run(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/b0/route_localnet", []byte(value), 0o644) })
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.ByIndex(index)
		if err != nil || l.RoutesLocalnet != (value == "1") {
			t.Errorf("route_localnet is %s: %+v, %v", value, l, err)
		}
	}
	for _, torn := range [][]byte{nil, {1}, {8, 0, 2, 0, 4, 0, 1, 0}, {4, 0, 2, 0}} {
		if routesLocalnet(torn) {
			t.Errorf("%v: true", torn)
		}
	}
}
