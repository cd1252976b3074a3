package agent

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// BenchmarkDNS has ten containers ask 10,000 questions a second, for a container and for a name elsewhere in turn, while others are attached.
func BenchmarkDNS(b *testing.B) {
	const askers = 10
	perSecond, seconds, adds := 10_000, 10, 64
	if testing.Short() {
		perSecond, seconds, adds = 500, 1, 4
	}
	host, out := newNamedHost(b)
	zone{"www.example.": has("www.example. 60 A 198.51.100.7")}.serve(b, out, netlab.OutsideIPv4)
	a := start(b, host, "--dns", "--every", "1h")
	var all []*inDNS
	for i := range askers {
		all = append(all, newNamed(b, host, 1, fmt.Sprint("asker", i)))
	}
	all[0].awaitNames()
	for b.Loop() {
		before := a.ticks()
		var mu sync.Mutex
		var took times
		var wait sync.WaitGroup
		for i, c := range all {
			wait.Go(func() {
				own := c.askAll(fmt.Sprint("asker", (i+1)%askers), perSecond*seconds/askers, time.Second*askers/time.Duration(perSecond))
				mu.Lock()
				defer mu.Unlock()
				took = append(took, own...)
			})
		}
		began := time.Now()
		for i := range adds {
			newNamed(b, host, 1, fmt.Sprint("beside", b.N, "-", i))
		}
		each := time.Since(began) / time.Duration(adds)
		wait.Wait()
		if len(took) == 0 {
			b.Fatal("nobody answers")
		}
		b.ReportMetric(inMS(took.percent(50)), "p50-ms")
		b.ReportMetric(inMS(took.percent(99)), "p99-ms")
		b.ReportMetric(float64(perSecond*seconds-len(took)), "lost")
		b.ReportMetric(inMS(each), "ADD-ms")
		b.ReportMetric(float64(a.ticks()-before)/float64(seconds), "agent-%") // a tick is a hundredth of a second
	}
	b.Log(a.peak())
}

// askAll asks questions at a pace, and returns how long each answer took.
func (c *inDNS) askAll(name string, count int, pace time.Duration) (took []time.Duration) {
	conn, err := c.DialContext(c.Context(), "udp", net.JoinHostPort(gateway(c.network), "53"))
	if err != nil {
		c.Error(err)
		return nil
	}
	defer conn.Close()
	began := time.Now()
	sent := make([]atomic.Int64, count) // since then
	answered := make(chan time.Duration, count)
	go func() {
		defer close(answered)
		packet, answer := make([]byte, 512), new(dns.Msg)
		for {
			n, err := conn.Read(packet)
			if err != nil {
				return
			}
			if answer.Unpack(packet[:n]) == nil && int(answer.Id) < count && len(answer.Answer) > 0 {
				answered <- time.Since(began) - time.Duration(sent[answer.Id].Load())
			}
		}
	}()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range count {
		<-tick.C
		q := query([]string{name, "www.example"}[i%2], dns.TypeA)
		q.Id = uint16(i)
		packet, _ := q.Pack()
		sent[i].Store(int64(time.Since(began)))
		_, _ = conn.Write(packet)
	}
	_ = conn.SetReadDeadline(time.Now().Add(silence))
	for d := range answered {
		took = append(took, d)
	}
	return took
}
