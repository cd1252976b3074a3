package bench

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// leases measures a bridge whose network has handed out addresses already. The no-op tells how fast the machine is
// meanwhile.
func (r *runner) leases(b *testing.B, scenario string) {
	var subjects []*subject
	for _, n := range r.profile.leases {
		for _, i := range choose(report.Reference, report.Debian, report.Cnibox, report.NoOp) {
			s := r.newSubject(b, i, network{bridge(hostLocal())}, strconv.Itoa(n))
			addLeases(b, s.Host, n)
			subjects = append(subjects, s)
		}
	}
	r.measure(b, scenario, r.profile.fewRounds, subjects)
}

// addLeases writes n leases the way the reference plugin does.
func addLeases(b *testing.B, host *netlab.Host, n int) {
	b.Helper()
	if n == 0 {
		return
	}
	dir := filepath.Join(netlab.CacheDir, "networks", networkName)
	address := netip.MustParsePrefix(subnet).Addr().Next() // the gateway
	var err error
	host.Do(func() {
		if err = os.MkdirAll(dir, 0o755); err != nil {
			return
		}
		for i := range n {
			address = address.Next()
			holder := strings.Repeat(strconv.Itoa(100000+i), 10) + "\r\neth0"
			if err = os.WriteFile(filepath.Join(dir, address.String()), []byte(holder), 0o600); err != nil {
				return
			}
		}
		err = os.WriteFile(filepath.Join(dir, "last_reserved_ip.0"), []byte(address.String()), 0o600)
	})
	if err != nil {
		b.Fatal(err)
	}
}
