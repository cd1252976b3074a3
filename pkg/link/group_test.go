package link

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// several makes veth pairs and returns the indexes of their host ends.
func several(t testing.TB, host, container *space, n int) []int {
	t.Helper()
	var indexes []int
	for i := range n {
		pair, err := host.CreateVeth(Veth{
			Host: fmt.Sprintf("veth%d", i), HostMAC: [6]byte{2, 1, byte(i)}, Container: fmt.Sprintf("eth%d", i), ContainerMAC: [6]byte{2, 2, byte(i)},
		}, container.ns)
		if err != nil {
			t.Fatal(err)
		}
		indexes = append(indexes, pair.Host)
	}
	return indexes
}

func TestDeleteAll(t *testing.T) {
	tests := map[string]struct {
		n      int
		spoil  func(t *testing.T, c *Conn, indexes []int) []int
		want   error
		remain int
	}{
		"none":    {n: 0},
		"one":     {n: 1},
		"several": {n: 5},
		"many":    {n: 70},
		"one is gone": {n: 3, spoil: func(t *testing.T, c *Conn, indexes []int) []int {
			if err := c.Delete(indexes[1]); err != nil {
				t.Fatal(err)
			}
			return indexes
		}},
		"all are gone": {n: 2, spoil: func(_ *testing.T, _ *Conn, _ []int) []int { return []int{4711, 4712} }, remain: 2},
		"one can't be deleted": {n: 3, spoil: func(_ *testing.T, _ *Conn, indexes []int) []int {
			return append([]int{1}, indexes...) // lo
		}, want: unix.EOPNOTSUPP},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			host, container := newSpace(t), newSpace(t)
			host.bridge(t, "br0")
			indexes := several(t, host, container, tt.n)
			if tt.spoil != nil {
				indexes = tt.spoil(t, host.Conn, indexes)
			}
			if err := host.DeleteAll(indexes); !errors.Is(err, tt.want) {
				t.Errorf("DeleteAll: %v, want %v", err, tt.want)
			}
			for _, s := range []*space{host, container} {
				links, err := s.List()
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, l := range links {
					if l.Kind == "veth" {
						n++
					}
				}
				if n != tt.remain {
					t.Errorf("%d ends remain, want %d", n, tt.remain)
				}
			}
			host.link(t, "br0")
		})
	}
}

// BenchmarkDeleteAll deletes 64 veth pairs at a time.
func BenchmarkDeleteAll(b *testing.B) {
	ways := map[string]func(c *Conn, indexes []int) error{
		"group": (*Conn).DeleteAll,
		"one by one": func(c *Conn, indexes []int) error {
			var errs []error
			for _, index := range indexes {
				errs = append(errs, c.Delete(index))
			}
			return errors.Join(errs...)
		},
	}
	const pairs = 64
	for name, way := range ways {
		b.Run(name, func(b *testing.B) {
			host, container := newSpace(b), newSpace(b)
			for b.Loop() {
				b.StopTimer()
				indexes := several(b, host, container, pairs)
				b.StartTimer()
				if err := way(host.Conn, indexes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N*pairs), "ms/pair")
		})
	}
}
