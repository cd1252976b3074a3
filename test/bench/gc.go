package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// collectors are the plugins whose GC is timed, in the order in which they let go of everything at last.
var collectors = []string{"bandwidth", "portmap", "bridge"}

const (
	callers   = 16
	perPod    = 10   // interfaces
	perBridge = 1000 // ports: the kernel has room for 1,023
)

// gc measures GC on a node that fills: alone, and beside callers that attach and detach their own pods all the time. All attachments
// are valid, the callers' too. At last none is.
func (r *runner) gc(b *testing.B, scenario string) {
	chain := choose(report.Chain)
	if len(chain) == 0 {
		return
	}
	s := r.newSubject(b, chain[0], nil, "")
	s.install(b, s.Host, r.programs, collectors...)
	busy := r.makePods(b, s.Host, callers)
	valid := make([]object, 0, callers)
	for _, pod := range busy {
		valid = append(valid, object{"containerID": pod.ID, "ifname": "eth0"})
	}
	for _, n := range r.profile.collected {
		valid = append(valid, r.fill(b, s, len(valid)-callers, n)...)
		for _, plugin := range collectors {
			alone, failed := s.collect(b, plugin, valid, r.profile.collections)
			r.recordGC(scenario, n, plugin, "alone", alone, failed)
		}
		stop := s.churn(b, busy)
		for _, plugin := range collectors {
			beside, failed := s.collect(b, plugin, valid, r.profile.collections)
			r.recordGC(scenario, n, plugin, "beside", beside, failed)
		}
		b.Logf("%d attachments: the callers made %d calls", n, stop())
		if err := reapOrphans(); err != nil {
			b.Fatal(err)
		}
	}
	n := r.profile.collected[len(r.profile.collected)-1]
	for _, plugin := range collectors {
		all, failed := s.collect(b, plugin, nil, 1)
		r.recordGC(scenario, n, plugin, "all stale", all, failed)
	}
}

func (r *runner) recordGC(scenario string, attachments int, plugin, metric string, taken []float64, failed int) {
	p := report.Point{Scenario: scenario, Case: strconv.Itoa(attachments), Plugins: plugin, Metric: metric}
	r.results.Add(p, "ms", taken...)
	p.Metric += " failed"
	r.results.Add(p, "calls", float64(failed))
}

// shaped is the i-th attachment's network: one network, on as many bridges as it needs.
func shaped(b testing.TB, i int) *libcni.NetworkConfigList {
	bridge := bridge(object{"type": "host-local", "ranges": [][]object{{{"subnet": subnet}}}})
	bridge["bridge"], bridge["ipMasq"] = fmt.Sprint("cni", i/perBridge), true
	return network{bridge, portmap, limits}.list(b, true)
}

// fill makes attachments from one number to another, some in each pod, and returns them for GC's list.
func (r *runner) fill(b *testing.B, s *subject, from, to int) (made []object) {
	pods := r.makePods(b, s.Host, (to-from+perPod-1)/perPod)
	for i := range to - from {
		made = append(made, object{"containerID": pods[i/perPod].ID, "ifname": fmt.Sprint("eth", i%perPod)})
	}
	errs := s.parallel(len(pods), 2, func(pod int) error {
		for i := pod * perPod; i < min((pod+1)*perPod, len(made)); i++ {
			rt := s.conf(pods[pod], otherPort+from+i)
			rt.IfName = made[i]["ifname"].(string)
			if _, err := s.on(shaped(b, from+i)).operate(detached, "ADD", rt); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	return made
}

// on returns the subject with another list.
func (s *subject) on(list *libcni.NetworkConfigList) *subject {
	other := *s
	other.list = list
	return &other
}

// detached runs a plugin whose orphans are not reaped meanwhile.
func detached(cmd *exec.Cmd) error {
	cmd.Env = append(cmd.Env, "CNIBOX_DETACH=always")
	return cmd.Run()
}

// churn has each pod attached and detached all the time, until the function it returns is called, which returns how many calls that
// were. They may not fail.
func (s *subject) churn(b *testing.B, pods []*netlab.Pod) (stop func() int64) {
	var calls atomic.Int64
	var ended atomic.Bool
	var done sync.WaitGroup
	list := shaped(b, perBridge*9) // on a bridge of its own
	for i, pod := range pods {
		done.Go(func() {
			s.Do(func() {
				for !ended.Load() {
					for _, verb := range batchVerbs {
						if _, err := s.on(list).operate(detached, verb, s.conf(pod, measuredPort+i)); err != nil {
							b.Error(err)
							return
						}
						calls.Add(1)
					}
				}
			})
		})
	}
	return func() int64 {
		ended.Store(true)
		done.Wait()
		return calls.Load()
	}
}

// collect calls a plugin's GC with a list of valid attachments, and returns the milliseconds of those that succeeded, and how many
// failed. What takes long is not repeated.
func (s *subject) collect(b *testing.B, plugin string, valid []object, times int) (taken []float64, failed int) {
	const long = 10 * time.Second
	if valid == nil {
		valid = []object{}
	}
	config := object{"cniVersion": "1.1.0", "name": networkName, "type": plugin, "cni.dev/valid-attachments": valid}
	if plugin == "bridge" {
		config["ipam"], config["ipMasq"] = hostLocal, true
	}
	for range times {
		start := time.Now()
		answer := s.Exec(b, plugin, netlab.PluginCall{Command: "GC", Path: netlab.PluginDir, Config: config})
		took := time.Since(start)
		if answer.ExitCode != 0 {
			b.Logf("GC of %s took %v and failed: %s", plugin, took, strings.TrimSpace(answer.Stdout))
			failed++
		} else {
			taken = append(taken, milliseconds(took))
		}
		if took > long {
			break
		}
	}
	return taken, failed
}
