package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/cnibox/cnibox/test/netlab"
)

// subject is what is measured: a network on a Host with an implementation's plugins.
type subject struct {
	*netlab.Host
	implementation string
	// varied is the case of the scenario.
	varied string
	verbs  []string
	list   *libcni.NetworkConfigList
	// ports is how many ports each pod publishes, from port on those that are measured.
	ports, port int
	// plugin is the one whose cost counts, "" for the whole call.
	plugin string
}

// newSubject makes a Host with the implementation's plugins, for one network.
func (r *runner) newSubject(b testing.TB, i implementation, n network, varied string) *subject {
	b.Helper()
	return newSubjectOn(b, i.newHost(b, r.programs), i, n, varied)
}

// newSubjectOn is newSubject with a Host that has the plugins.
func newSubjectOn(b testing.TB, host *netlab.Host, i implementation, n network, varied string) *subject {
	b.Helper()
	list, err := n.list(i.chain)
	if err != nil {
		b.Fatal(err)
	}
	s := &subject{Host: host, implementation: i.name, varied: varied, verbs: verbs, list: list, ports: 1, port: measuredPort}
	if i.badCheck {
		s.verbs = []string{"ADD", "DEL"}
	}
	return s
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

// call makes one call of libcni in the subject's Host.
func (s *subject) call(exec invoke.Exec, verb string, rt *libcni.RuntimeConf) (err error) {
	s.Do(func() { err = operate(exec, verb, s.list, rt) })
	return s.explain(verb, err)
}

func (s *subject) explain(verb string, err error) error {
	if err != nil {
		return fmt.Errorf("%s of %s (%s): %w", verb, s.implementation, s.varied, err)
	}
	return nil
}

// timed makes one call, with nothing else under way, and tells what it took. Waiting for the processes that it left is
// not part of its time, but what they use is part of its CPU.
func (s *subject) timed(verb string, rt *libcni.RuntimeConf) (whole cost, err error) {
	watch := newStopwatch()
	before := childrenCPU()
	s.Do(func() {
		start := time.Now()
		err = operate(watch, verb, s.list, rt)
		whole.wall = time.Since(start)
	})
	if err != nil {
		return whole, s.explain(verb, err)
	}
	if err := reapOrphans(); err != nil {
		return whole, err
	}
	whole.cpu = childrenCPU() - before
	if s.plugin != "" {
		return watch.took[s.plugin], nil
	}
	return whole, nil
}

// attach adds attachments to the node that stay.
func (r *runner) attach(b *testing.B, s *subject, from, to int) {
	b.Helper()
	pods := r.makePods(b, s.Host, to-from)
	parallel(b, len(pods), runtime.NumCPU(), func(i int) error {
		return s.attachOne(s.conf(pods[i], otherPort+(from+i)*s.ports))
	})
}

// attempts is how often an ADD that only fills the node is tried: those of the reference plugins fail now and then when
// two of them run iptables at once.
const attempts = 3

func (s *subject) attachOne(rt *libcni.RuntimeConf) (err error) {
	for range attempts {
		if err = s.call(plain(), "ADD", rt); err == nil {
			return nil
		}
		if err := s.call(plain(), "DEL", rt); err != nil {
			return err
		}
	}
	return err
}
