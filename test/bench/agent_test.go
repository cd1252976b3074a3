package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

const withAgent = "cnibox and an agent"

// agentNode is what BenchmarkAgent measures: a subject, with an agent or without.
type agentNode struct {
	*subject
	pods  []*netlab.Pod
	agent *exec.Cmd // or nil
	taken samples
}

// BenchmarkAgent starts 250 pods at once (24 with -short), eight at a time as runtimes do, and stops them: with cnibox alone, with an agent
// beside it, and with the reference plugins. It prints what a call takes, and the CPU time of all plugins and of the agent.
//
//	go test ./test/bench -run '^$' -bench Agent -benchtime 1x
func BenchmarkAgent(b *testing.B) {
	const atOnce = 8
	profile, count, rounds := chosenProfile(b), 250, 3
	if testing.Short() {
		count, rounds = 24, 1
	}
	if profile.rounds != full.rounds && !testing.Short() {
		rounds = profile.rounds // as -rounds says
	}
	r := newRunner(b, profile)
	var nodes []*agentNode
	for _, n := range [][2]string{{"cnibox", report.Cnibox}, {withAgent, report.Cnibox}, {"reference", report.Reference}} {
		for _, i := range choose(n[1]) {
			nodes = append(nodes, newAgentNode(b, r, i, n[0], count))
		}
	}
	for _, n := range nodes { // no agent may run when others warm up, who wait for all children
		if n.varied == withAgent {
			n.startAgent(b)
			b.Cleanup(func() { n.stopAgent(b) })
		}
	}
	for range rounds {
		for _, i := range r.random.Perm(len(nodes)) {
			if err := nodes[i].measure(atOnce); err != nil {
				b.Error(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%d pods, %d at a time, %d rounds; ms of a call, and ms of CPU per pod\n\n", count, atOnce, rounds)
	fmt.Printf("| | ADD p50 | ADD p99 | DEL p50 | DEL p99 | CPU, plugins | CPU, agent | failed |\n|---|---|---|---|---|---|---|---|\n")
	for _, n := range nodes {
		fmt.Printf("| %s | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.0f |\n", n.varied, quantile(n.taken["ADD"], 0.5), quantile(n.taken["ADD"], 0.99),
			quantile(n.taken["DEL"], 0.5), quantile(n.taken["DEL"], 0.99), quantile(n.taken["CPU"], 0.5), quantile(n.taken["agent"], 0.5), sum(n.taken["failed"]))
	}
}

func newAgentNode(b *testing.B, r *runner, i implementation, title string, count int) *agentNode {
	b.Helper()
	plugin := bridge(hostLocal)
	plugin["ipMasq"] = true
	n := &agentNode{subject: r.newSubject(b, i, network{plugin, portmap}, title), taken: samples{}}
	n.pods = r.makePods(b, n.Host, count)
	r.warmUp(b, n.subject, n.pods[0])
	return n
}

// startAgent starts an agent, and waits until it is ready.
func (n *agentNode) startAgent(b *testing.B) {
	b.Helper()
	n.agent = n.Command(netlab.Cnictl(b), "agent")
	if err := n.Start(n.agent); err != nil {
		b.Fatal(err)
	}
	netlab.Until(b, "the agent to be ready", func() bool { return n.Run(n.Command(netlab.Cnictl(b), "agent", "status")) == nil })
}

func (n *agentNode) stopAgent(b *testing.B) {
	b.Helper()
	_ = n.agent.Process.Signal(unix.SIGTERM)
	if err := n.agent.Wait(); err != nil {
		b.Error("the agent: ", err)
	}
}

// measure attaches the pods and detaches them.
func (n *agentNode) measure(atOnce int) error {
	plugins, agent := childrenCPU(), n.agentCPU()
	for _, verb := range batchVerbs {
		each := make([]float64, len(n.pods))
		errs := n.parallel(len(n.pods), atOnce, func(i int) error {
			took, err := n.operate((*exec.Cmd).Run, verb, n.conf(n.pods[i], measuredPort+i))
			each[i] = milliseconds(took)
			return err
		})
		n.taken[verb] = append(n.taken[verb], each...)
		failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		n.taken["failed"] = append(n.taken["failed"], float64(len(failed)))
		if len(failed) > tolerated*len(n.pods)/100 {
			return errors.Join(failed...)
		}
		if err := n.reapOrphans(); err != nil {
			return err
		}
		n.awaitIdle()
	}
	perPod := float64(len(n.pods))
	n.taken["CPU"] = append(n.taken["CPU"], milliseconds(childrenCPU()-plugins)/perPod)
	n.taken["agent"] = append(n.taken["agent"], milliseconds(n.agentCPU()-agent)/perPod)
	return nil
}

// reapOrphans waits for what a DEL leaves, and that ends by itself. An agent does not.
func (n *agentNode) reapOrphans() error {
	for last := time.Now(); time.Since(last) < time.Second; {
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); {
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for orphans: %w", err)
		case pid > 0:
			last = time.Now()
		default:
			netlab.Pause(5 * time.Millisecond)
		}
	}
	return nil
}

// awaitIdle waits until the agent has done what there was to do, for some minutes at most.
func (n *agentNode) awaitIdle() {
	const quiet = 2 * time.Second
	end := time.Now().Add(3 * time.Minute)
	for used, since := n.agentCPU(), time.Now(); n.agent != nil && time.Since(since) < quiet && time.Now().Before(end); netlab.Pause(100 * time.Millisecond) {
		if now := n.agentCPU(); now != used {
			used, since = now, time.Now()
		}
	}
}

// agentCPU returns the CPU time that the agent and what it has started and waited for have used.
func (n *agentNode) agentCPU() (used time.Duration) {
	if n.agent == nil {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.agent.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after) // the third and later ones of proc(5)
	const perSecond = 100           // of the clock's ticks, on all architectures that Go knows
	for _, field := range fields[11:15] {
		ticks, _ := strconv.Atoi(field)
		used += time.Duration(ticks) * time.Second / perSecond
	}
	return used
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
