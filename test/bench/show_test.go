package bench

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/test/netlab"
)

// crowd is the network of BenchmarkShow.
const crowd = `{"cniVersion": "1.1.0", "name": "crowd", "plugins": [
  {"type": "bridge", "bridge": "crowd0", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.80.0.0/16"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}`

// BenchmarkShow measures the model of a node with 1,000 containers (50 with -short), each with a published port: time, and the memory that
// it takes and keeps; and time, CPU time and peak memory of what cnictl shows of it. 10.80.250.250 is nobody's, so that it is looked for
// inside all containers.
//
//	go test ./test/bench -run '^$' -bench Show -benchtime 10x
func BenchmarkShow(b *testing.B) {
	programs, count := buildPrograms(b), 1000
	if testing.Short() {
		count = 50
	}
	host := netlab.NewHost(b)
	host.InstallPlugins(b, "bridge", "host-local", "portmap")
	host.NewOutside(b)
	host.Feed(b, crowd, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-crowd.conflist")
	const workers = 4
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := w; i < count; i += workers {
				rt := host.NewPod(b, fmt.Sprint("pod-", i)).RuntimeConf(map[string]any{"portMappings": portMappings(10000+i, 1)})
				if _, err := host.AddList(crowd, rt); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if wait.Wait(); b.Failed() {
		return
	}
	b.Run("model", func(b *testing.B) {
		b.ReportAllocs()
		host.Do(func() {
			before := heap()
			var n *node.Node
			for b.Loop() {
				n = node.Read(b.Context(), node.Options{Plugins: plugins.All})
			}
			b.ReportMetric(float64(heap()-before)/(1<<20), "MiB-kept")
			if len(n.Attachments) != count {
				b.Errorf("%d attachments", len(n.Attachments))
			}
		})
	})
	for _, args := range [][]string{{}, {"--json"}, {"networks"}, {"ports"}, {"10.80.0.9"}, {"10.80.250.250"}, {"--html", "-"}} {
		b.Run(fmt.Sprint(args), func(b *testing.B) {
			peak, busy := 0.0, childrenCPU()
			for b.Loop() {
				var used usage
				var err error
				host.Do(func() {
					used, err = programs.launch(host.Command(netlab.Cnictl(b), append([]string{"show"}, args...)...))
				})
				if err != nil {
					b.Fatal(err)
				}
				peak = max(peak, used.peak)
			}
			b.ReportMetric(milliseconds(childrenCPU()-busy)/float64(b.N), "cpu-ms/op")
			b.ReportMetric(peak/(1<<20), "MiB-peak")
		})
	}
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
