package bandwidth

import (
	"fmt"
	"math"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
)

// config is what the bandwidth plugin reads of a configuration; docs/bandwidth.md explains each key.
type config struct {
	ingress, egress limit // to the container, and from it
	latency         int   // milliseconds
}

// limit is what may pass in one direction; zero is all.
type limit struct {
	rate  uint64 // bytes a second
	burst uint64 // bytes
}

var keys = []string{"ingressRate", "ingressBurst", "egressRate", "egressBurst"}

// parse reads and validates the configuration of an ADD, CHECK or STATUS. What the runtime asks for counts only where the
// configuration says nothing, as with the reference plugin.
func parse(o *conf.Object) (*config, error) {
	c := &config{latency: 25}
	o.Int("latency", &c.latency)
	if c.latency < 1 {
		o.Fail("latency", "a number of milliseconds above 0", fmt.Sprint(c.latency))
	}
	from := o
	if !slices.ContainsFunc(keys, o.Has) {
		from = o.Object("runtimeConfig").Object("bandwidth")
	}
	c.ingress = readLimit(from, keys[0], keys[1])
	c.egress = readLimit(from, keys[2], keys[3])
	return c, o.Err()
}

func readLimit(o *conf.Object, rateKey, burstKey string) limit {
	var rate, burst int // in bits
	o.Int(rateKey, &rate)
	o.Int(burstKey, &burst)
	switch {
	case rate < 0 || rate > 0 && rate < 8:
		o.Fail(rateKey, "at least 8 bits a second, or 0 for no limit", fmt.Sprint(rate))
	case burst < 0 || burst/8 >= math.MaxUint32:
		o.Fail(burstKey, "a number of bits below 4 GB", fmt.Sprint(burst))
	case rate > 0 && burst == 0:
		o.Fail(burstKey, "a burst in bits, because "+rateKey+" is set", "none")
	case rate == 0 && burst > 0:
		o.Fail(rateKey, "a rate in bits a second, because "+burstKey+" is set", "none")
	}
	return limit{uint64(rate) / 8, uint64(burst) / 8}
}

func (c *config) isEmpty() bool { return c.ingress.rate == 0 && c.egress.rate == 0 }

// tbf returns the token bucket filter (tc-tbf(8)) for a limit on what a link sends, with the values of the reference plugin. Its CHECK
// compares them.
func (c *config) tbf(l limit, linkIndex int) *netlink.Tbf {
	// The kernel counts the bucket in the time that it takes to fill, in ticks of 64 ns, and takes 32 bits of nanoseconds.
	const most = math.MaxUint32 / 64
	ticks := l.burst * 1_000_000 / l.rate * 1000 / 64
	queue := float64(l.rate)*float64(c.latency)/1000 + float64(l.burst)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: linkIndex, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       l.rate,
		Buffer:     uint32(min(ticks, most)),
		Limit:      uint32(min(queue, math.MaxUint32)),
	}
}
