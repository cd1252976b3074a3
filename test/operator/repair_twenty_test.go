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
				containers = append(containers, c)
				open = append(open, harmtest.Dial(t, &p.outside.Namespace, fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i)))
			}
			hit := containers[many/2]
			before, inside := p.host.Snapshot(t), hit.Snapshot(t)
			e.Do(t, p.host, hit)
			begun := time.Now()
			code, printed := p.cnictl("repair")
			t.Logf("repair of %d attachments took %v", many, time.Since(begun).Round(time.Millisecond))
			repaired := many
			if e.HitsOne {
				repaired = 1
			}
			if want := fmt.Sprintf("%d repaired", repaired); code != 0 || !strings.Contains(printed, want) {
				t.Errorf("exit code %d, want 0 and %s\n%s", code, want, printed)
			}
			if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...) + inside.Diff(hit.Snapshot(t)); diff != "" {
				t.Errorf("after the repair:\n%s\n%s", diff, printed)
			}
			for i, conn := range open {
				if err := harmtest.Echo(conn); err != nil {
					t.Errorf("the connection to container %d that was open: %v", i, err)
				}
			}
			for i := range many {
				harmtest.Dial(t, &p.outside.Namespace, fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i))
			}
		})
	}
}
