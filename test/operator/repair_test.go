package operator

import (
	"strings"
	"testing"

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

func TestRepair(t *testing.T) {
	t.Parallel()
	for _, h := range harmtest.Harms {
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			mend(t, h)
		})
	}
}

func mend(t *testing.T, h harmtest.Harm) {
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
	before, inside := p.host.Snapshot(t), web.Snapshot(t)
	h.Do(t, p.host, web)
	harmed, harmedInside := p.host.Snapshot(t), web.Snapshot(t)
	code, printed := p.cnictl("repair", "--dry-run")
	if code != 1 || !strings.Contains(printed, h.Finds) {
		t.Fatalf("dry run: exit code %d, want one that finds %q\n%s", code, h.Finds, printed)
	}
	if diff := harmed.Diff(p.host.Snapshot(t)) + harmedInside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("the dry run has changed:\n%s", diff)
	}
	code, printed = p.cnictl("repair")
	t.Log(printed)
	if code != 0 || !strings.Contains(printed, "repaired") {
		t.Errorf("repair: exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...) + inside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("after the repair:\n%s\n%s", diff, printed)
	}
	if err := harmtest.Echo(open); err != nil {
		t.Errorf("the connection that was open: %v", err)
	}
	harmtest.Dial(t, &p.outside.Namespace, target)
	if code, printed := p.cnictl("repair"); code != 0 || !strings.Contains(printed, "2 attachments: 2 right") {
		t.Errorf("a second repair: exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...) + inside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("after the second repair:\n%s", diff)
	}
}

func (p *patient) script(text string) {
	p.Helper()
	harmtest.Script(p, &p.host.Namespace, text)
}
