package nftables

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// open opens a connection to the nf_tables of a host until the test ends.
func open(t testing.TB, h *netlab.Host) *Conn {
	t.Helper()
	var c *Conn
	var err error
	h.Do(func() { c, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
