package bandwidth

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// FuzzParse makes sure that no configuration panics, and that a limit lets something pass, and knows its own values.
func FuzzParse(f *testing.F) {
	f.Add(`{"ingressRate":8,"ingressBurst":34359738359,"latency":1}`)
	f.Add(`{"ingressRate":1000000,"ingressBurst":8000,"egressRate":9223372036854775807,"egressBurst":12112,"latency":9223372036854775807}`)
	f.Add(`{"egressRate":-1,"egressBurst":7,"runtimeConfig":{"bandwidth":{"ingressRate":1}}}`)
	f.Add(`{"runtimeConfig":{"bandwidth":{"ingressRate":1000,"ingressBurst":4294967295}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := parse(o)
		if err != nil {
			return
		}
		for _, l := range []limit{c.ingress, c.egress} {
			if l.rate == 0 {
				continue
			}
			tbf := c.tbf(l, 1)
			if tbf.Rate == 0 || l.burst >= 1500 && uint64(tbf.Limit) < 1500 || !c.isTBF(tbf, l) {
				t.Errorf("%s makes %+v", text, tbf)
			}
			const ticks = 15_625_000 // a second
			if more, sent := bits.Mul64(uint64(tbf.Buffer), l.rate); tbf.Buffer < math.MaxUint32 && more == 0 && sent < l.burst*ticks {
				t.Errorf("%s makes %+v, in whose buffer the burst has no room", text, tbf)
			}
		}
	})
}

// TestLacking: which kernels lack something is not ours to choose.
func TestLacking(t *testing.T) {
	for errno, code := range map[unix.Errno]uint{
		unix.ENOENT:     types.ErrPluginNotAvailable, // no such qdisc, filter or action
		unix.EOPNOTSUPP: types.ErrPluginNotAvailable, // no such kind of link
		unix.EEXIST:     types.ErrInternal,
		unix.EPERM:      types.ErrInternal,
	} {
		err := lacking(fmt.Errorf("netlink: %w", errno), "limit it", tokenBucket)
		if e := plugin.AsError(err); e.Code != code {
			t.Errorf("%v: code %d, want %d: %v", errno, e.Code, code, e)
		}
	}
	if err := lacking(nil, "limit it", tokenBucket); err != nil {
		t.Error(err)
	}
}
