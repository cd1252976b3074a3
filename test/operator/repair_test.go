package operator

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// patient is a node whose containers something is taken from.
type patient struct {
	*operator
	outside *netlab.Outside
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	host, outside := node(t)
	return &patient{operator: &operator{t, host}, outside: outside}
}

// add attaches a container.
func (p *patient) add(list, name string, capabilities map[string]any) *harmtest.Container {
	p.Helper()
	return harmtest.Attach(p, p.host, list, name, capabilities)
}

func (p *patient) script(text string) {
	p.Helper()
	harmtest.Script(p, &p.host.Namespace, text)
}

// dial connects from outside to a port of the host, and has an answer.
func (p *patient) dial(port int) net.Conn {
	p.Helper()
	return harmtest.Dial(p, &p.outside.Namespace, fmt.Sprintf("%s:%d", netlab.HostIPv4, port))
}

// unchanged returns what fails if the node, or a pod, is not as it is now, but for what repair has for itself, and lines that begin so.
func (p *patient) unchanged(pod *netlab.Pod, but ...string) func(when string) {
	p.Helper()
	before, inside := p.host.Snapshot(p), pod.Snapshot(p)
	return func(when string) {
		p.Helper()
		if diff := before.Diff(p.host.Snapshot(p), append(but, harmtest.OfRepair...)...) + inside.Diff(pod.Snapshot(p)); diff != "" {
			p.Errorf("changed %s:\n%s", when, diff)
		}
	}
}

// mends does a harm to one of so many attachments. A dry run finds it, and changes nothing. A repair has all as it was before, and the next one nothing to do.
func (p *patient) mends(h harmtest.Harm, c *harmtest.Container, all int) {
	p.Helper()
	asBefore := p.unchanged(c.Pod)
	h.Do(p, p.host, c)
	asHarmed := p.unchanged(c.Pod)
	if code, printed := p.cnictl("repair", "--dry-run"); code != 1 || !strings.Contains(printed, h.Finds) {
		p.Fatalf("dry run: exit code %d, want one that finds %q\n%s", code, h.Finds, printed)
	}
	asHarmed("by the dry run")
	if printed := p.must("repair"); !strings.Contains(printed, "repaired") {
		p.Errorf("repair says:\n%s", printed)
	}
	asBefore("after the repair")
	if printed := p.must("repair"); !strings.Contains(printed, fmt.Sprintf(": %d right", all)) {
		p.Errorf("a second repair says:\n%s", printed)
	}
	asBefore("after the second repair")
}

func TestRepair(t *testing.T) {
	t.Parallel()
	for _, h := range harmtest.Harms {
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			p.script(h.Prepare)
			web, other := p.add(h.List(), "web", port(8080, 80, "tcp")), p.add(h.List(), "other", port(8081, 80, "tcp"))
			web.Serve(t)
			other.Serve(t)
			target := netlab.HostIPv4 + ":8080"
			if !strings.Contains(h.Network, "portmap") {
				target = web.Address + ":80"
				p.outside.AddRoute(t, web.Address)
			}
			open := harmtest.Dial(t, &p.outside.Namespace, target)
			p.mends(h, web, 2)
			if err := harmtest.Echo(open); err != nil {
				t.Errorf("the connection that was open: %v", err)
			}
			harmtest.Dial(t, &p.outside.Namespace, target)
		})
	}
}

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
			result, err := p.host.AddList(h.List(), rt)
			if err != nil {
				t.Fatal(err)
			}
			c := &harmtest.Container{Pod: pod}
			for _, i := range result.Interfaces {
				if strings.HasPrefix(i.Name, "veth") {
					c.End = i.Name
				}
			}
			p.mends(h, c, 1)
		})
	}
}

// TestRepairTwenty takes things from a node with twenty containers, to each of which somebody has a connection open, and has all of it back
// as it was before. It logs how long that takes.
func TestRepairTwenty(t *testing.T) {
	const many = 20
	for i, e := range harmtest.Events {
		if netlab.LeftOut(t, i, 4) {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			p := newPatient(t)
			e.Begin(t, p.host)
			var containers []*harmtest.Container
			var open []net.Conn
			for i := range many {
				c := p.add(e.List(), fmt.Sprintf("web%d", i), port(8000+i, 80, "tcp"))
				c.Serve(t)
				containers, open = append(containers, c), append(open, p.dial(8000+i))
			}
			hit := containers[many/2]
			asBefore := p.unchanged(hit.Pod)
			e.Do(t, p.host, hit)
			begun := time.Now()
			printed := p.must("repair")
			t.Logf("repair of %d attachments took %v", many, time.Since(begun).Round(time.Millisecond))
			repaired := many
			if e.HitsOne {
				repaired = 1
			}
			if want := fmt.Sprintf("%d repaired", repaired); !strings.Contains(printed, want) {
				t.Errorf("want %s\n%s", want, printed)
			}
			asBefore("after the repair")
			for i, conn := range open {
				if err := harmtest.Echo(conn); err != nil {
					t.Errorf("the connection to container %d that was open: %v", i, err)
				}
				p.dial(8000 + i)
			}
		})
	}
}

// TestRepairReference repairs what the reference plugins have made where cnibox has taken their place: in iptables, if it was there, so that
// no port is published twice.
func TestRepairReference(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ backend, harm string }{
		{"iptables", "nft flush ruleset"},
		{"nftables", "nft flush ruleset"},
		{"", "iptables -t nat -F; ip6tables -t nat -F"},
	} {
		t.Run("backend "+tt.backend, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			p.host.InstallFrom(t, netlab.Reference(t), "bridge", "host-local", "portmap")
			network, published := harmtest.Entered(harmtest.Usual), port(8080, 80, "tcp")
			if tt.backend != "" {
				network = strings.NewReplacer(`"ipMasq": true`, `"ipMasq": true, "ipMasqBackend": "`+tt.backend+`"`, `"type": "portmap"`, `"backend": "`+tt.backend+`", "type": "portmap"`).Replace(network)
			}
			web := p.add(network, "web", published)
			web.Serve(t)
			p.host.InstallPlugins(t, "bridge", "host-local", "portmap")
			asBefore := p.unchanged(web.Pod)
			if printed := p.must("repair"); !strings.Contains(printed, "1 attachment: 1 right") {
				t.Errorf("what the reference has made is not right:\n%s", printed)
			}
			asBefore("though it was right")
			open := p.dial(8080)
			p.script(tt.harm + "; ip link set " + web.End + " nomaster; ip address flush dev demo0")
			web.MustRun(t, "ip", "address", "flush", "dev", "eth0")
			p.must("repair")
			if err := harmtest.Echo(open); err != nil {
				t.Error(err)
			}
			p.dial(8080)
			if rules := p.host.MustRun(t, "nft", "list", "ruleset"); tt.backend == "" && strings.Contains(rules, "inet cnibox ") {
				t.Errorf("what was in iptables is in nftables, too:\n%s", rules)
			}
			if err := p.host.DelList(network, web.RuntimeConf(published)); err != nil {
				t.Fatal(err)
			}
			if left := p.host.MustRun(t, "sh", "-c", "nft list ruleset; iptables-save"); strings.Contains(left, "8080") || strings.Contains(left, web.ID) {
				t.Errorf("left after DEL:\n%s", left)
			}
		})
	}
}
