package bench

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// prefixes are so many in each list.
const prefixes = 50

// pairedNode is a node with attachments, whose network has one plugin more than another node's, or none.
type pairedNode struct {
	*subject
	like  *pairedNode // the node that it is compared with
	pod   *netlab.Pod
	now   samples // of this round
	taken samples // of all
	more  samples // than the other took in the same round
}

// BenchmarkEgress measures ADD, DEL and connections of one more container, without a list and with one of 50 prefixes, alone and beside 1,000 containers
// (20 with -short) with the same list or with a list each. Rounds are in an order of chance, and what a list costs is the median of the differences within
// a round.
//
//	go test ./test/bench -run '^$' -bench Egress -benchtime 1x
func BenchmarkEgress(b *testing.B) {
	const connections = 100
	profile, beside := chosenProfile(b), 1000
	if testing.Short() {
		beside = 20
	}
	r := newRunner(b, profile)
	alone := r.newPairedNode(b, "no list", 0, nil)
	full := r.newPairedNode(b, fmt.Sprintf("no list, beside %d containers", beside), beside, nil)
	one := func(int) object { return listOf(0) }
	nodes := []*pairedNode{alone, r.newPairedNode(b, "a list", 0, one), full,
		r.newPairedNode(b, fmt.Sprintf("a list, beside %d containers that share it", beside), beside, one),
		r.newPairedNode(b, fmt.Sprintf("a list, beside %d containers with a list each", beside), beside, listOf)}
	nodes[1].like, nodes[3].like, nodes[4].like = alone, full, full
	r.comparePairs(b, nodes, profile.rounds, connections)
}

// comparePairs measures in rounds, and prints the medians and those of the differences within a round.
func (r *runner) comparePairs(b *testing.B, nodes []*pairedNode, rounds, connections int) {
	b.Helper()
	r.awaitQuiet()
	for range rounds {
		for _, i := range r.random.Perm(len(nodes)) {
			if err := nodes[i].measure(connections); err != nil {
				b.Fatal(nodes[i].varied, ": ", err)
			}
		}
		for _, n := range nodes {
			n.compare()
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%d rounds of an ADD, connections (%d) and a DEL; medians in ms, and of what was more than without it in the same round\n\n", rounds, connections)
	metrics := []string{"ADD", "ADD CPU", "DEL", "DEL CPU"}
	if connections > 0 {
		metrics = append(metrics, "connection")
	}
	fmt.Printf("| | %s | more |\n|---|%s\n", strings.Join(metrics, " | more | "), strings.Repeat("---|---|", len(metrics)))
	for _, n := range nodes {
		fmt.Printf("| %s |", n.varied)
		for _, metric := range metrics {
			more := ""
			if n.like != nil {
				more = fmt.Sprintf("%+.3f", quantile(n.more[metric], 0.5))
			}
			fmt.Printf(" %.3f | %s |", quantile(n.taken[metric], 0.5), more)
		}
		fmt.Println()
	}
	for _, f := range r.facts(b) {
		fmt.Printf("- %s: %s\n", f.Name, f.Value)
	}
}

// listOf is the plugin with the i-th list: the outside, and prefixes that are that list's own.
func listOf(i int) object {
	entries := []string{netlab.OutsideIPv4}
	for k := range prefixes - 1 {
		entries = append(entries, fmt.Sprintf("%d.%d.%d.0/24", 20+k, i/256, i%256))
	}
	return object{"type": "egress", "allow": entries}
}

// newPairedNode returns a node with so many attachments behind bridge, of which each has the plugin of its number besides, if there is one, and a pod for
// one more.
func (r *runner) newPairedNode(b *testing.B, title string, attachments int, besides func(i int) object) *pairedNode {
	b.Helper()
	of := func(i int) network {
		plugin := bridge(hostLocal)
		plugin["ipMasq"] = true
		if besides == nil {
			return network{plugin}
		}
		return network{plugin, besides(i)}
	}
	cnibox := choose(report.Cnibox)
	if len(cnibox) == 0 {
		b.Skip("cnibox is not among the implementations")
	}
	n := &pairedNode{subject: r.newSubject(b, cnibox[0], of(0), title), taken: samples{}, more: samples{}}
	n.InstallPlugins(b, "egress", "dnsname")
	n.NewOutside(b).ServeTCP(b, netlab.OutsideIPv4+":80")
	pods := r.makePods(b, n.Host, (attachments+perPod-1)/perPod+1)
	n.pod = pods[len(pods)-1]
	r.warmUp(b, n.subject, n.pod)
	errs := n.parallel(attachments, 2, func(i int) error {
		rt := pods[i/perPod].RuntimeConf(nil)
		rt.IfName = "eth" + strconv.Itoa(i%perPod)
		_, err := n.on(of(i+1).list(b, false)).operate(detached, "ADD", rt)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		b.Fatal(title, ": ", err)
	}
	return n
}

// measure attaches the pod, connects to the outside, and detaches it.
func (n *pairedNode) measure(connections int) error {
	n.now = samples{}
	for _, verb := range []string{"ADD", "", "DEL"} {
		if verb == "" {
			if err := n.connect(connections); err != nil {
				return err
			}
			continue
		}
		cost, err := n.timed(verb, n.conf(n.pod, measuredPort))
		if err != nil {
			return err
		}
		n.now[verb], n.now[verb+" CPU"] = []float64{milliseconds(cost.wall)}, []float64{milliseconds(cost.cpu)}
	}
	return reapOrphans()
}

// connect makes connections, one after another, and notes the median.
func (n *pairedNode) connect(connections int) (err error) {
	if connections == 0 {
		return nil
	}
	var taken []float64
	n.pod.Do(func() {
		for range connections {
			var conn net.Conn
			start := time.Now()
			if conn, err = net.DialTimeout("tcp", netlab.OutsideIPv4+":80", netlab.Patience); err != nil {
				return
			}
			taken = append(taken, milliseconds(time.Since(start)))
			_ = conn.Close()
		}
	})
	n.now["connection"] = []float64{quantile(taken, 0.5)}
	return err
}

// compare adds the round's figures to all.
func (n *pairedNode) compare() {
	for metric, taken := range n.now {
		n.taken[metric] = append(n.taken[metric], taken...)
		if n.like != nil {
			n.more[metric] = append(n.more[metric], taken[0]-n.like.now[metric][0])
		}
	}
}
