package firewall

import (
	"slices"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// BenchmarkPortMaps times portmap for one more attachment on a node without
// ports and on one with thousands, in turn, so that both have the same share of
// what else the machine does. It reports the median of each, and the ratio.
//
//	go test ./test/firewall -run '^$' -bench PortMaps -benchtime 200x
func BenchmarkPortMaps(b *testing.B) {
	for _, kind := range backends {
		b.Run(kind.name, func(b *testing.B) {
			empty, full := newBenchNode(b, kind), newBenchNode(b, kind)
			load(b, full.Host, kind)
			for _, verb := range verbs {
				b.Run(verb, func(b *testing.B) { benchmark(b, verb, empty, full) })
			}
		})
	}
}

// benchNode is a host and the pod of the attachment that comes and goes.
type benchNode struct {
	*netlab.Host
	pod    *netlab.Pod
	config string
}

func newBenchNode(b *testing.B, kind backend) *benchNode {
	b.Helper()
	host := newHost(b, kind)
	warm(b, host, network(kind, podsBridge))
	return &benchNode{Host: host, pod: host.NewPod(b, "one"), config: one(kind)}
}

func benchmark(b *testing.B, verb string, empty, full *benchNode) {
	nodes := []*benchNode{empty, full}
	times := make([][]time.Duration, len(nodes))
	for range b.N {
		for i, n := range nodes {
			times[i] = append(times[i], n.cycle(b)[verb])
		}
	}
	without, with := median(times[0]), median(times[1])
	b.ReportMetric(0, "ns/op") // not shown: it would be that of all verbs on both nodes
	b.ReportMetric(float64(without.Microseconds())/1000, "empty-ms")
	b.ReportMetric(float64(with.Microseconds())/1000, "5000-ms")
	b.ReportMetric(float64(with)/float64(without), "ratio")
}

// cycle makes all calls for the attachment and returns how long each took.
func (n *benchNode) cycle(b *testing.B) map[string]time.Duration {
	b.Helper()
	took := map[string]time.Duration{}
	for _, verb := range verbs {
		call := n.pod.Call(verb, n.config)
		start := time.Now()
		r := n.Exec(b, "portmap", call)
		took[verb] = time.Since(start)
		if r.ExitCode != 0 {
			b.Fatalf("%s: %s", verb, r)
		}
	}
	return took
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
