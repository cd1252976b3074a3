package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/test/netlab"
)

// hurt is a network of BenchmarkRepair, and what takes its rules away.
type hurt struct {
	name, conflist, harm string
	table                nftables.Table
	chain, set           string // which has at least one rule, or one element, for each attachment when all is back
}

const hurtIPAM = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.80.0.0/16"}]]}`

var hurts = []hurt{
	{"nft flush ruleset", crowd, "nft flush ruleset", nftables.Table{Family: nftables.TableFamilyINet, Name: "cnibox"}, "", "ports4_v1"},
	{"nft flush ruleset, firewall and bandwidth too", `{"cniVersion": "1.1.0", "name": "crowd", "plugins": [
  {"type": "bridge", "bridge": "crowd0", "isGateway": true, "ipMasq": true, ` + hurtIPAM + `},
  {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall", "backend": "nftables"},
  {"type": "bandwidth", "ingressRate": 80000000, "ingressBurst": 8000000, "egressRate": 80000000, "egressBurst": 8000000}]}`,
		"nft flush ruleset", nftables.Table{Family: nftables.TableFamilyINet, Name: "cnibox-forward"}, "", "pods4_v1"},
	{"iptables -F -t nat", `{"cniVersion": "1.1.0", "name": "crowd", "plugins": [
  {"type": "bridge", "bridge": "crowd0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", ` + hurtIPAM + `},
  {"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}]}`,
		"iptables -F -t nat", nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"}, "CNI-HOSTPORT-DNAT", ""},
}

// BenchmarkRepair measures cnictl repair of 1, 100 and 1,000 attachments after something took their rules: until all rules are back, until the
// program ends, and its CPU time; and what a look costs that finds nothing. To fill a node with 1,000 containers takes a while.
//
//	go test ./test/bench -run '^$' -bench Repair -benchtime 3x
func BenchmarkRepair(b *testing.B) {
	programs, counts := buildPrograms(b), []int{1, 100, 1000}
	if testing.Short() {
		counts = []int{1, 50}
	}
	for _, h := range hurts {
		host := netlab.NewHost(b)
		host.InstallPlugins(b, "bridge", "host-local", "portmap", "firewall", "bandwidth")
		host.NewOutside(b)
		host.Feed(b, h.conflist, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-crowd.conflist")
		there := 0
		for _, count := range counts {
			fill(b, host, h.conflist, there, count)
			there = count
			b.Run(fmt.Sprintf("%s/%d", h.name, count), func(b *testing.B) { h.measure(b, programs, host, count) })
			b.Run(fmt.Sprintf("%s/%d/nothing", h.name, count), func(b *testing.B) {
				busy := childrenCPU()
				for b.Loop() {
					repairOnce(b, programs, host)
				}
				b.ReportMetric(milliseconds(childrenCPU()-busy)/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// fill attaches the containers from one number up to another.
func fill(b *testing.B, host *netlab.Host, conflist string, from, to int) {
	b.Helper()
	const workers = 4
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := from + w; i < to; i += workers {
				rt := host.NewPod(b, fmt.Sprint("pod-", i)).RuntimeConf(map[string]any{"portMappings": portMappings(10000+i, 1)})
				if _, err := host.AddList(conflist, rt); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if wait.Wait(); b.Failed() {
		b.FailNow()
	}
}

func (h hurt) measure(b *testing.B, programs programs, host *netlab.Host, count int) {
	var look *nft.Conn // stays in the host's namespace
	var err error
	host.Do(func() { look, err = nft.Open() })
	if err != nil {
		b.Fatal(err)
	}
	defer look.Close()
	back, peak, busy := time.Duration(0), 0.0, time.Duration(0)
	for b.Loop() {
		host.MustRun(b, "sh", "-c", h.harm)
		begun, before := time.Now(), childrenCPU()
		isBack := make(chan time.Duration)
		go func() {
			const step = 20 * time.Millisecond // a look at 1,000 takes a tenth of that
			for h.holds(look) < count && time.Since(begun) < time.Minute {
				netlab.Pause(step)
			}
			isBack <- time.Since(begun)
		}()
		peak = max(peak, repairOnce(b, programs, host).peak)
		busy += childrenCPU() - before
		back += <-isBack
	}
	b.ReportMetric(milliseconds(back)/float64(b.N), "back-ms/op")
	b.ReportMetric(milliseconds(busy)/float64(b.N), "cpu-ms/op")
	b.ReportMetric(peak/(1<<20), "MiB-peak")
}

func repairOnce(b *testing.B, programs programs, host *netlab.Host) (used usage) {
	b.Helper()
	var err error
	host.Do(func() { used, err = programs.launch(host.Command(netlab.Cnictl(b), "repair")) })
	if err != nil {
		b.Fatal(err)
	}
	return used
}

// holds counts the rules or elements that are there.
func (h hurt) holds(c *nft.Conn) int {
	if h.set == "" {
		rules, _ := c.GetRules(&h.table, &nftables.Chain{Name: h.chain})
		return len(rules)
	}
	elements, _ := c.GetSetElements(&nftables.Set{Table: &h.table, Name: h.set}) // an error says that it is not there yet
	return len(elements)
}
