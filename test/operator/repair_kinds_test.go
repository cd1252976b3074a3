package operator

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestRepairKinds(t *testing.T) {
	t.Parallel()
	for _, h := range harmtest.OfKinds {
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			if h.Needs != nil {
				netlab.Need(t, *h.Needs)
			}
			p := newPatient(t)
			pod := p.host.NewPod(t, "kind")
			p.script(h.Prepare)
			rt := pod.RuntimeConf(nil)
			if h.Name == "loopback" {
				rt.IfName = "lo"
			} else {
				pod.SetLoopbackUp(t)
			}
			end := p.attachAs(h.List(), rt)
			before, inside := p.host.Snapshot(t), pod.Snapshot(t)
			h.Do(t, p.host, &harmtest.Container{Pod: pod, End: end})
			if code, printed := p.cnictl("repair", "--dry-run"); code != 1 || !strings.Contains(printed, h.Finds) {
				t.Errorf("dry run: exit code %d, want one that finds %q\n%s", code, h.Finds, printed)
			}
			printed := p.must("repair")
			if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...) + inside.Diff(pod.Snapshot(t)); diff != "" {
				t.Errorf("after the repair:\n%s\n%s", diff, printed)
			}
			if printed := p.must("repair"); !strings.Contains(printed, "1 attachment: 1 right") {
				t.Errorf("a second repair:\n%s", printed)
			}
		})
	}
}

// attachAs attaches a container, and returns the name of its host end.
func (p *patient) attachAs(list string, rt *libcni.RuntimeConf) (end string) {
	p.Helper()
	result, err := p.host.AddList(list, rt)
	if err != nil {
		p.Fatal(err)
	}
	for _, i := range result.Interfaces {
		if strings.HasPrefix(i.Name, "veth") {
			end = i.Name
		}
	}
	return end
}

// TestRepairOrder gives a container that is on two networks its default routes back in their order: the first is the one that counts.
func TestRepairOrder(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	pod := p.host.NewPod(t, "two")
	pod.SetLoopbackUp(t)
	second := strings.NewReplacer("demo", "second", "10.88.0", "10.89.0", "fd00:88", "fd00:89").Replace(harmtest.Entered(harmtest.Bridge))
	p.attachAs(harmtest.Entered(harmtest.Bridge), pod.RuntimeConf(nil))
	rt := pod.RuntimeConf(nil)
	rt.IfName = "net1"
	p.attachAs(second, rt)
	before := pod.MustRun(t, "ip", "route")
	for _, harm := range []string{"ip route flush table main", "ip route del default dev eth0", "ip address flush dev eth0; ip address flush dev net1"} {
		pod.MustRun(t, "sh", "-ec", harm)
		p.must("repair")
		if after := pod.MustRun(t, "ip", "route"); after != before {
			t.Errorf("after %s, and a repair:\n%s\nbefore:\n%s", harm, after, before)
		}
	}
}
