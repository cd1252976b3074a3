package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// subject is what is measured: a network on a Host with an implementation's plugins.
type subject struct {
	*netlab.Host
	implementation
	// varied is the case of the scenario.
	varied string
	list   *libcni.NetworkConfigList
	// ports is how many ports each pod publishes, from port on those that are measured.
	ports, port int
	// plugin is the one whose cost counts, "" for the whole call.
	plugin string
}

// newSubject makes a Host with the implementation's plugins, for one network.
func (r *runner) newSubject(b testing.TB, i implementation, n network, varied string) *subject {
	b.Helper()
	s := &subject{Host: netlab.NewHost(b), implementation: i, varied: varied, list: n.list(b, i.chain), ports: 1, port: measuredPort}
	i.install(b, s.Host, r.programs, pluginNames...)
	return s
}

// newSubjects makes one of each chosen implementation of those that are named.
func (r *runner) newSubjects(b testing.TB, names []string, n network, varied string) (subjects []*subject) {
	b.Helper()
	for _, i := range choose(names...) {
		subjects = append(subjects, r.newSubject(b, i, n, varied))
	}
	return subjects
}

// measuredPort is the first port of the pods that are measured. Those of pods that are there already begin at
// otherPort.
const (
	measuredPort = 30000
	otherPort    = 10000
)

// conf returns what the runtime tells about a pod.
func (s *subject) conf(pod *netlab.Pod, firstPort int) *libcni.RuntimeConf {
	return pod.RuntimeConf(map[string]any{"portMappings": portMappings(firstPort, s.ports)})
}

// point is what the subject's figures are of.
func (s *subject) point(scenario, metric string) report.Point {
	return report.Point{Scenario: scenario, Case: s.varied, Plugins: s.name, Metric: metric}
}

// operate makes one call of libcni, and returns what it took. It must run in the subject's Host.
func (s *subject) operate(run starter, verb string, rt *libcni.RuntimeConf) (took time.Duration, err error) {
	if s.operates != nil {
		start := time.Now()
		err = s.operates(s, run, verb, rt)
		return time.Since(start), err
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{netlab.PluginDir}, netlab.CacheDir,
		&executor{&invoke.DefaultExec{RawExec: &invoke.RawExec{}, PluginDecoder: version.PluginDecoder{}}, run})
	ctx, start := context.Background(), time.Now()
	switch verb {
	case "ADD":
		_, err = cni.AddNetworkList(ctx, s.list, rt)
	case "CHECK":
		err = cni.CheckNetworkList(ctx, s.list, rt)
	case "DEL":
		err = cni.DelNetworkList(ctx, s.list, rt)
	case "STATUS":
		err = cni.GetStatusNetworkList(ctx, s.list)
	case "VERSION":
		for _, p := range s.list.Plugins {
			_, failed := cni.GetVersionInfo(ctx, p.Network.Type)
			err = errors.Join(err, failed)
		}
	}
	took = time.Since(start)
	if err != nil {
		err = fmt.Errorf("%s of %s (%s): %w", verb, s.name, s.varied, err)
	}
	return took, err
}

// call is operate from anywhere.
func (s *subject) call(run starter, verb string, rt *libcni.RuntimeConf) (took time.Duration, err error) {
	s.Do(func() { took, err = s.operate(run, verb, rt) })
	return took, err
}

// timed makes one call, with nothing else under way, and tells what it took. Waiting for the processes that it left is
// not part of its time, but what they use is part of its CPU.
func (s *subject) timed(verb string, rt *libcni.RuntimeConf) (cost, error) {
	watch := stopwatch{}
	before := childrenCPU()
	wall, err := s.call(watch.run, verb, rt)
	if err == nil {
		err = reapOrphans()
	}
	if s.plugin != "" {
		return watch[s.plugin], err
	}
	return cost{wall, childrenCPU() - before}, err
}

// samples are what the rounds of one subject gave, by metric, in milliseconds.
type samples map[string][]float64

func (s samples) add(metric string, value float64) { s[metric] = append(s[metric], value) }

// round makes the calls for one pod. They are not recorded if taken is nil.
func (s *subject) round(pod *netlab.Pod, taken samples) error {
	rt := s.conf(pod, s.port)
	for _, verb := range verbs {
		if verb == "CHECK" && s.badCheck {
			continue
		}
		c, err := s.timed(verb, rt)
		if err != nil {
			return err
		}
		if taken != nil {
			taken[verb] = append(taken[verb], milliseconds(c.wall))
			taken[verb+" CPU"] = append(taken[verb+" CPU"], milliseconds(c.cpu))
		}
	}
	return nil
}

// warmUp has a subject make all calls for a pod, which don't count.
func (r *runner) warmUp(b testing.TB, s *subject, pod *netlab.Pod) {
	b.Helper()
	for range r.profile.warmups {
		if err := s.round(pod, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// measure has all subjects make all calls for a new pod, in each round, and records what they took.
func (r *runner) measure(b *testing.B, scenario string, rounds int, subjects []*subject) {
	b.Helper()
	// All are made before the first is used, and last until b ends: making and destroying namespaces keeps the kernel busy
	// for a while.
	pods := make([][]*netlab.Pod, len(subjects))
	taken := make([]samples, len(subjects))
	for i, s := range subjects {
		pods[i], taken[i] = r.makePods(b, s.Host, rounds+1), samples{}
		r.warmUp(b, s, pods[i][rounds])
	}
	for round := range rounds {
		// Not only rotated: then each would always run in what the same other one left behind.
		for _, i := range r.random.Perm(len(subjects)) {
			if err := subjects[i].round(pods[i][round], taken[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i, s := range subjects {
		for _, verb := range verbs {
			for _, metric := range []string{verb, verb + " CPU"} {
				r.results.Add(s.point(scenario, metric), "ms", taken[i][metric]...)
			}
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// attempts is how often an ADD that only fills the node is tried: those of the reference plugins fail now and then when
// two of them run iptables at once.
const attempts = 3

// attach adds attachments to the node that stay.
func (r *runner) attach(b *testing.B, s *subject, from, to int) (pods []*netlab.Pod) {
	b.Helper()
	pods = r.makePods(b, s.Host, to-from)
	errs := s.parallel(len(pods), runtime.NumCPU(), func(i int) (err error) {
		rt := s.conf(pods[i], otherPort+(from+i)*s.ports)
		for range attempts {
			if _, err = s.operate((*exec.Cmd).Run, "ADD", rt); err == nil {
				return nil
			}
			if _, err := s.operate((*exec.Cmd).Run, "DEL", rt); err != nil {
				return err
			}
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	return pods
}

// parallel calls work in the Host for 0…n-1, workers at a time, and returns its errors.
func (s *subject) parallel(n, workers int, work func(i int) error) []error {
	numbers := make(chan int, n)
	for i := range n {
		numbers <- i
	}
	close(numbers)
	errs := make([]error, n)
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			s.Do(func() {
				for i := range numbers {
					errs[i] = work(i)
				}
			})
		})
	}
	done.Wait()
	return errs
}
