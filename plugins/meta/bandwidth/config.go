package bandwidth

import (
	"fmt"
	"math"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
)

// config is what the bandwidth plugin reads of a configuration; docs/plugins/bandwidth.md explains each key.
type config struct {
	ingress, egress limit // to the container, and from it
	latency         *int  // milliseconds, nil if there is none
}

// limit is what may pass in one direction; zero is all.
type limit struct {
	rate  uint64 // bytes a second
	burst uint64 // bytes
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS. A limit from the runtime counts only where the
// configuration says nothing, as with the reference plugin.
func parse(o *conf.Object) (*config, error) {
	c := &config{}
	o.OptionalInt("latency", &c.latency)
	if c.latency != nil && *c.latency < 1 {
		o.Fail("latency", "a number of milliseconds above 0", fmt.Sprint(*c.latency))
	}
	from := o
	if !slices.ContainsFunc([]string{"ingressRate", "ingressBurst", "egressRate", "egressBurst"}, o.Has) {
		from = o.Object("runtimeConfig").Object("bandwidth")
	}
	c.ingress = readLimit(from, "ingressRate", "ingressBurst")
	c.egress = readLimit(from, "egressRate", "egressBurst")
	return c, o.Err()
}

// mostBurst is the longest burst that the kernel can be told, in bits: one in bytes has 32 bits.
const mostBurst = math.MaxUint32*8 - 1

// leastRate is in bits a second. At less, what the kernel can be told of a burst has no room for a packet of 1514 bytes.
const leastRate = 48

func readLimit(o *conf.Object, rateKey, burstKey string) limit {
	var rate, burst int64 // in bits
	o.Int64(rateKey, &rate)
	o.Int64(burstKey, &burst)
	switch {
	case rate < 0 || rate > 0 && rate < leastRate:
		o.Fail(rateKey, fmt.Sprintf("at least %d bits a second, or 0 for no limit", leastRate), fmt.Sprint(rate))
	case burst < 0 || burst > mostBurst:
		o.Fail(burstKey, "a burst in bits, below 4 GB", fmt.Sprint(burst))
	case rate > 0 && burst == 0:
		o.Fail(burstKey, "a burst in bits: if rate is set, burst must also be set", "none")
	case rate == 0 && burst > 0:
		o.Fail(rateKey, "a rate in bits a second: if burst is set, rate must also be set", "none")
	}
	return limit{uint64(rate) / 8, uint64(burst) / 8}
}

func (c *config) isEmpty() bool { return c.ingress.rate == 0 && c.egress.rate == 0 }

// tbf returns the token bucket filter (tc-tbf(8)) for a limit on what a link sends.
func (c *config) tbf(l limit, linkIndex int) *netlink.Tbf {
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: linkIndex, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       l.rate,
		Buffer:     uint32(min(l.ticks(), math.MaxUint32)),
		Limit:      uint32(min(c.queue(l), math.MaxUint32)),
	}
}

// ticks is how long the burst takes at the rate, in the kernel's unit of 64 ns. It is rounded up: a moment less would have no room for
// the burst's last packet.
func (l limit) ticks() uint64 {
	const perSecond = 1_000_000_000 / 64
	return (l.burst*perSecond + l.rate - 1) / l.rate
}

// referenceTicks is the same as the reference plugin has it: in whole microseconds, of which 32 bits are left.
func (l limit) referenceTicks() uint32 {
	micros := l.burst * 1_000_000 / l.rate & math.MaxUint32
	return uint32(micros * 1000 / 64)
}

// queue returns how many bytes wait at most: what passes in the latency, but at least the largest packet that programs leave to the
// kernel to cut or, without a latency, what the reference plugin takes.
func (c *config) queue(l limit) uint64 {
	const largest = 80_000
	if c.latency != nil {
		return max(uint64(min(float64(l.rate)*float64(*c.latency)/1000, math.MaxUint32)), largest)
	}
	return l.rate/1000*25 + l.rate%1000*25/1000 + l.burst
}

// isTBF reports whether a filter has the values for a limit, ours or those of the reference plugin, which cuts large numbers to their
// lower 32 bits.
func (c *config) isTBF(is *netlink.Tbf, l limit) bool {
	want := c.tbf(l, 0)
	return is.Rate == want.Rate && (is.Buffer == want.Buffer || is.Buffer == l.referenceTicks()) &&
		(is.Limit == want.Limit || is.Limit == uint32(c.queue(l)))
}
