package firewall

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestConcurrent adds attachments, then removes them while it adds others, then
// removes those, all of each step at once. Nothing may fail or be left.
func TestConcurrent(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) { testConcurrent(t, b) })
	}
}

func testConcurrent(t *testing.T, b backend) {
	host := newHost(t, b)
	outside := host.NewOutside(t)
	conflist := network(b, podsBridge)
	warm(t, host, conflist)
	first, second := newCrowd(t, host, "first", 20000), newCrowd(t, host, "second", 30000)
	before := host.Snapshot(t)

	add := func(c *container) error { return c.add(host, conflist) }
	del := func(c *container) error { return c.del(host, conflist) }
	atOnce(t, each(first, add))
	askCrowd(t, host, outside, conflist, first, 20000)
	atOnce(t, append(each(first, del), each(second, add)...))
	askCrowd(t, host, outside, conflist, second, 30000)
	protocols[0].refused(t, &outside.Namespace, at(families[0].host, 20000))
	atOnce(t, each(second, del))

	if diff := before.Diff(host.Snapshot(t), furniture(conflist)...); diff != "" {
		t.Errorf("left behind:\n%s", diff)
	}
}

// newCrowd makes pods that each publish two ports, from base on.
func newCrowd(t *testing.T, host *netlab.Host, name string, base int) []*container {
	t.Helper()
	var all []*container
	for i := range *crowdFlag {
		all = append(all, &container{
			Pod: host.NewPod(t, fmt.Sprintf("%s-%d", name, i)),
			caps: map[string]any{"portMappings": []port{
				{HostPort: base + 2*i, ContainerPort: webPort, Protocol: "tcp"},
				{HostPort: base + 2*i + 1, ContainerPort: webPort, Protocol: "udp"},
			}},
		})
	}
	return all
}

// askCrowd asks members of a crowd for published ports from outside, has them ask for the way out, and checks them.
func askCrowd(t *testing.T, host *netlab.Host, outside *netlab.Outside, conflist string, members []*container, base int) {
	t.Helper()
	for _, i := range []int{0, len(members) / 3, len(members) - 1} {
		c := members[i]
		for _, f := range families {
			for n, p := range protocols[:2] {
				p.serve(t, &c.Namespace, at(f.container(c), webPort))
				p.ask(t, question{&outside.Namespace, at(f.host, uint16(base+2*i+n)), c.Name() + " saw " + f.outside.String()})
			}
			server := outside.ServeTCP(t, at(f.outside, 0))
			protocols[0].ask(t, question{&c.Namespace, server.String(), "outside saw " + f.host.String()})
		}
		if err := host.CheckList(conflist, c.RuntimeConf(c.caps)); err != nil {
			t.Errorf("CHECK %s: %v", c.Name(), err)
		}
	}
}

// each are calls for all members of a crowd.
func each(members []*container, call func(*container) error) (calls []func() error) {
	for _, c := range members {
		calls = append(calls, func() error { return call(c) })
	}
	return calls
}

// atOnce makes the calls at the same time. The test fails if one does.
func atOnce(t *testing.T, calls []func() error) {
	t.Helper()
	failures := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { failures[i] = call() })
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatalf("of %d calls at once these failed:\n%v", len(calls), err)
	}
}

// warm attaches and detaches a container, so that what attachments share, and
// stays, is there.
func warm(t testing.TB, host *netlab.Host, conflist string) {
	t.Helper()
	c := attach(t, host, conflist, "warm", port{1, 1, "tcp", ""}, port{1, 1, "udp", ""})
	if err := c.del(host, conflist); err != nil {
		t.Fatal(err)
	}
}

// furniture begins the lines of a snapshot that may change while a node has no
// attachments: host-local's own files.
func furniture(conflist string) []string {
	_, rest, _ := strings.Cut(conflist, `"name": "`)
	name, _, _ := strings.Cut(rest, `"`)
	const store = "file /var/lib/cni/networks/"
	return []string{store + ".cnibox", store + name + "/lock", store + name + "/last_reserved_ip", store + name + " d"}
}
