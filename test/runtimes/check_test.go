package runtimes

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// container is one that runs on a node.
type container struct {
	// id is the id the runtime gives the plugins, which is not always the one it shows.
	id string
	// address is the container's own, as its runtime knows it, and address6 that of IPv6 if the network gives one.
	address, address6 string
	// exec runs a shell command line in the container and returns what it printed.
	exec func(t *testing.T, commandLine string) string
	// remove stops the container and removes it.
	remove func(t *testing.T)
}

// testLifecycle starts a container, checks it and removes it, and checks that nothing of it is left. It does that twice,
// since the first container of a node also makes what the network has for all: after the second there must be nothing
// that was not there after the first.
func (n *node) testLifecycle(t *testing.T, start func(t *testing.T, name string) container, check func(t *testing.T, c container)) {
	t.Helper()
	fresh := n.Snapshot(t)
	first := n.runOnce(t, "web1", start, check)
	if diff := fresh.Diff(first, append(ofNetwork, ofRuntime...)...); diff != "" {
		t.Errorf("left by the first container:\n%s", diff)
	}
	second := n.runOnce(t, "web2", start, check)
	if diff := first.Diff(second, append(ofAllocation, ofRuntime...)...); diff != "" {
		t.Errorf("left by the second container:\n%s", diff)
	}
	if !t.Failed() {
		t.Logf("kept for the next container:\n%s", fresh.Diff(second, ofRuntime...))
	}
}

// runOnce returns the state of the node after the container.
func (n *node) runOnce(t *testing.T, name string, start func(t *testing.T, name string) container, check func(t *testing.T, c container)) *netlab.Snapshot {
	t.Helper()
	before := processes(t)
	c := start(t, name)
	t.Logf("%s runs with address %s and id %s", name, c.address, c.id)
	n.awaitPage(t, c.address)
	n.checkContainer(t, c)
	check(t, c)
	c.remove(t)
	awaitEnd(t, before)
	t.Logf("%s is removed; the runtime called %s", name, n.calls(t, c.id))
	after := n.Snapshot(t)
	checkForgotten(t, after, c)
	return after
}

// settled is a node after its first container, which makes what the network keeps.
type settled struct {
	snapshot  *netlab.Snapshot
	processes map[int]string
}

// noMore is to check nothing more than runOnce does.
func noMore(*testing.T, container) {}

// settle starts and removes a first container.
func (n *node) settle(t *testing.T, start func(t *testing.T, name string) container) settled {
	t.Helper()
	return settled{n.runOnce(t, "first", start, noMore), processes(t)}
}

// checkSettled makes sure that nothing has come since to stay.
func (n *node) checkSettled(t *testing.T, before settled) {
	t.Helper()
	awaitEnd(t, before.processes)
	if diff := n.changes(t, before); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
}

func (n *node) changes(t *testing.T, before settled) string {
	t.Helper()
	return before.snapshot.Diff(n.Snapshot(t), append(ofAllocation, ofRuntime...)...)
}

// What a snapshot may show after a container that it did not show before.
var (
	// ofNetwork is what the first container of a network makes for all of them.
	ofNetwork = append([]string{
		"link " + bridgeName + ":", "qdisc " + bridgeName + ":", "address " + bridgeName + ":",
		"route ipv4 10.88.0.", "sysctl ", "nft ", "iptables ",
		"file /var/lib/cni ", "file /run/cnibox ", "file /run/cnibox/",
		"file /var/lib/cni/results ", "file /var/lib/cni/networks ", "file /var/lib/cni/networks/.cnibox ",
		"file /var/lib/cni/networks/web ", "file /var/lib/cni/networks/web/lock ",
	}, ofAllocation...)

	// ofAllocation is what an address leaves behind: where to look for the next one, and host-local's index of the
	// leases, in which the time of the last change is written.
	ofAllocation = []string{
		"file /var/lib/cni/networks/web/last_reserved_ip.", "file /var/lib/cni/networks/back/last_reserved_ip.", "file /var/lib/cni/networks/.cnibox/",
	}

	// ofRuntime are the runtimes' own things.
	ofRuntime = []string{
		"mount ", "file /run ", "file /run/containerd", "file /run/containers", "file /run/crun", "file /run/libpod",
		"file /run/buildkit", "file /run/lock", "file /run/runc", "file /etc/cni/net.d/cni.lock ",
	}
)

// checkForgotten fails the test when anything on the node still names the container.
func checkForgotten(t *testing.T, after *netlab.Snapshot, c container) {
	t.Helper()
	named := regexp.MustCompile(`\b(` + regexp.QuoteMeta(c.id) + `|` + regexp.QuoteMeta(c.address) + `)\b`)
	for _, line := range after.Lines("") {
		if named.MatchString(line) && !hasPrefix(line, ofAllocation) && !hasPrefix(line, ofRuntime) {
			t.Errorf("still names the removed container: %s", line)
		}
	}
}

func hasPrefix(line string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// checkContainer checks what every attached container can do: it has tuning's sysctl, answers on its own address, and
// reaches outside, which sees the node's address.
func (n *node) checkContainer(t *testing.T, c container) {
	t.Helper()
	if got := c.exec(t, "cat /proc/sys/net/core/somaxconn"); got != somaxconn {
		t.Errorf("net.core.somaxconn of the container is %s, want %s", got, somaxconn)
	}
	checkPage(t, n.Namespace, c.address+":80")
	checkPage(t, n.outside.Namespace, c.address+":80")

	server := n.outside.ServeTCP(t, netlab.OutsideIPv4+":0")
	got := c.exec(t, fmt.Sprintf("echo hello | nc -w %v %s %d", netlab.Patience.Seconds(), server.Addr(), server.Port()))
	t.Logf("from the container, %s: %q", server, got)
	if want := "outside saw " + netlab.HostIPv4; got != want {
		t.Errorf("the container was answered %q from outside, want %q", got, want)
	}
}

// checkPublished checks that a published port answers from everywhere it should.
func (n *node) checkPublished(t *testing.T, port string) {
	t.Helper()
	checkPage(t, n.outside.Namespace, netlab.HostIPv4+":"+port)
	checkPage(t, n.Namespace, netlab.HostIPv4+":"+port)
	checkPage(t, n.Namespace, "127.0.0.1:"+port)
}

// checkUnpublished checks that nothing answers on a port that was published.
func (n *node) checkUnpublished(t *testing.T, port string) {
	t.Helper()
	tests := []struct {
		from    netlab.Namespace
		address string
	}{
		{n.outside.Namespace, netlab.HostIPv4},
		{n.Namespace, netlab.HostIPv4},
		{n.Namespace, "127.0.0.1"},
	}
	for _, tt := range tests {
		page, err := fetch(tt.from, tt.address+":"+port, silence)
		if err == nil {
			t.Errorf("from %s, %s:%s still answers: %q", tt.from.Name(), tt.address, port, page)
			continue
		}
		t.Logf("from %s, as it should be: %v", tt.from.Name(), err)
	}
}

// checkPage fetches the container's page in a namespace.
func checkPage(t *testing.T, from netlab.Namespace, address string) {
	t.Helper()
	page, err := fetch(from, address, netlab.Patience)
	if err != nil {
		t.Errorf("from %s: %v", from.Name(), err)
		return
	}
	t.Logf("from %s, http://%s/: %q", from.Name(), address, page)
	if page != pageBody {
		t.Errorf("from %s, http://%s/ is %q, want %q", from.Name(), address, page, pageBody)
	}
}

// checkPageFrom fetches the page in a container, by a port that is published on the node's address.
func (n *node) checkPageFrom(t *testing.T, c container, port string) {
	t.Helper()
	got := c.exec(t, fmt.Sprintf(`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w %v %s %s`, netlab.Patience.Seconds(), netlab.HostIPv4, port))
	if !strings.HasSuffix(got, strings.TrimSpace(pageBody)) {
		t.Errorf("from container %s, port %s answers %q", c.id, port, got)
	}
}

// awaitPage waits until the container's web server listens: a runtime does not wait for that.
func (n *node) awaitPage(t *testing.T, address string) {
	t.Helper()
	netlab.Eventually(t, func() error {
		_, err := fetch(n.Namespace, address+":80", silence)
		return err
	})
}

// silence is how long a page is waited for that must not come, or before it is asked for again.
const silence = time.Second

// fetch asks a web server for its page. Every call makes a connection of its own.
func fetch(from netlab.Namespace, address string, wait time.Duration) (string, error) {
	client := http.Client{
		Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true},
		Timeout:   wait,
	}
	response, err := client.Get("http://" + address + "/")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("http://%s/: %s: %q", address, response.Status, page)
	}
	return string(page), nil
}
