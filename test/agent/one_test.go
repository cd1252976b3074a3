package agent

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestOneAgent: a second agent refuses at once and says who runs, and the first one does not notice.
func TestOneAgent(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	first := start(t, host)
	code, printed := cnictl(t, host, "agent")
	if code != 1 || !strings.Contains(printed, "another agent runs") || !regexp.MustCompile(fmt.Sprintf(`process %d\b`, first.pid())).MatchString(printed) {
		t.Errorf("the second: exit code %d, and it does not say that process %d runs\n%s", code, first.pid(), printed)
	}
	if pid := first.status().PID; pid != first.pid() {
		t.Errorf("process %d answers", pid)
	}
	first.stop()
	start(t, host).stop()
}

// TestStaleSocket: an agent takes over what a killed one has left.
func TestStaleSocket(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	start(t, host).kill()
	host.MustRun(t, "test", "-S", socketPath)
	if code, printed := cnictl(t, host, "agent", "status"); code != 1 || !strings.Contains(printed, "does not answer") {
		t.Errorf("status while none runs: exit code %d\n%s", code, printed)
	}
	start(t, host).stop()
}

// TestUpgrade replaces the agent again and again while containers come and go. No call fails.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	before := warm(t, host)
	done := make(chan struct{})
	var callers sync.WaitGroup
	var cycles atomic.Int32
	for i := range 2 {
		pod := host.NewPod(t, fmt.Sprint("comes", i))
		pod.SetLoopbackUp(t)
		callers.Go(func() {
			for calls := 0; ; calls++ {
				select {
				case <-done:
					if calls == 0 {
						t.Error("no call was made")
					}
					return
				default:
				}
				if err := cycle(host, pod, 8000+i); err != nil {
					t.Error(err)
				}
				cycles.Add(1)
			}
		})
	}
	for range chosen(3, 20) {
		a := start(t, host, "--every", "1s", "--grace", "2s")
		made := cycles.Load()
		netlab.Until(t, "containers to come and go", func() bool { return cycles.Load() > made+2 })
		a.stop()
		if n := a.log.count(`msg="put back"`) + a.log.count("msg=collected"); n > 0 {
			t.Errorf("it repaired or collected what nobody had hit:\n%s", a.log)
		}
	}
	close(done)
	callers.Wait()
	if diff := before.Diff(host.Snapshot(t), ofAgent...); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
}

// warm has a host make and remove an attachment, so that it has what a network leaves for the next container. It returns how it is then.
func warm(t testing.TB, host *netlab.Host) *netlab.Snapshot {
	t.Helper()
	pod := host.NewPod(t, "first")
	if err := cycle(host, pod, 8000); err != nil {
		t.Fatal(err)
	}
	pod.Delete(t)
	return host.Snapshot(t)
}

// cycle makes an ADD, a CHECK and a DEL.
func cycle(host *netlab.Host, pod *netlab.Pod, number int) error {
	rt := pod.RuntimeConf(port(number))
	if _, err := host.AddList(usual, rt); err != nil {
		return err
	}
	if err := host.CheckList(usual, rt); err != nil {
		return err
	}
	return host.DelList(usual, rt)
}
