package upgrade

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

var long = flag.Bool("long", false, "replace the binary 50 times during 500 calls")

// replaced are the plugins of the network below.
var replaced = []string{"bridge", "firewall", "host-local", "portmap", "tuning"}

// replacedNetwork uses all of them, so that a plugin that is not what its name says fails a call.
const replacedNetwork = `{
  "cniVersion": "1.1.0", "name": "demo",
  "plugins": [
    {"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}},
    {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}},
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "firewall"}
  ]
}`

// TestReplaceUnderLoad has cnictl replace cnibox again and again, by another release and by another kind of links, while several callers
// attach and detach containers. No call may notice.
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	const callers = 4
	replacements, calls := 10, 60
	if *long {
		replacements, calls = 50, 500
	}
	host := netlab.NewHost(t)
	releases := []string{netlab.Cnibox(t), anotherRelease(t)}
	install := func(i int) {
		link := []string{"stub", "copy"}[i/2%2]
		printed, err := host.Output(host.Command(netlab.Cnictl(t), "install", "--dir", netlab.PluginDir, "--link", link,
			"--only", strings.Join(replaced, ","), "--from", releases[i%2]))
		want := fmt.Sprintf("installed cnibox and %d plugins in %s\n  plugins:  %s\n", len(replaced), netlab.PluginDir, strings.Join(replaced, " "))
		if err != nil || printed != want {
			t.Errorf("replacement %d, %s: %v\n%s\nwant:\n%s", i, link, err, printed, want)
		}
	}
	install(0)
	attachAndDetach(t, host, host.NewPod(t, "warm"), "warm", 7999) // what containers share is there from now on
	before := host.Snapshot(t)

	// Neither side ends before both have done their part, so that calls and replacements are always beside each other.
	var called, done atomic.Int64
	working := func() bool { return !t.Failed() && (called.Load() < int64(calls) || done.Load() < int64(replacements)) }
	var calling sync.WaitGroup
	for c := range callers {
		pod := host.NewPod(t, fmt.Sprint("pod", c))
		calling.Go(func() {
			for i := 0; working(); i++ {
				attachAndDetach(t, host, pod, fmt.Sprintf("caller%d-%d", c, i), 8000+c)
				called.Add(2)
			}
		})
	}
	for working() {
		install(int(done.Add(1)))
	}
	calling.Wait()
	t.Logf("%d replacements during %d calls of ADD and DEL", done.Load(), called.Load())

	diff := before.Diff(host.Snapshot(t), append([]string{"file /opt/cni/bin", "file /run/netns/", "mount /run/netns/"}, emptyStores...)...)
	if diff != "" {
		t.Errorf("left behind:\n%s", diff)
	}
	host.MustRun(t, netlab.Cnictl(t), "uninstall", "--dir", netlab.PluginDir)
	if left := host.MustRun(t, "ls", "-A", netlab.PluginDir); left != "" {
		t.Errorf("left in the directory of plugins: %s", left)
	}
}

// attachAndDetach makes the calls that a runtime makes for one container.
func attachAndDetach(t *testing.T, host *netlab.Host, pod *netlab.Pod, id string, port int) {
	rt := pod.RuntimeConf(map[string]any{"portMappings": []map[string]any{{"hostPort": port, "containerPort": 80, "protocol": "tcp"}}})
	rt.ContainerID = id
	result, err := host.AddList(replacedNetwork, rt)
	if err != nil {
		t.Errorf("ADD %s: %v", id, err)
	} else if v4, v6 := netlab.Addresses(result); !v4.IsValid() || !v6.IsValid() {
		t.Errorf("ADD %s: addresses %v and %v", id, v4, v6)
	} else if err := host.CheckList(replacedNetwork, rt); err != nil {
		t.Errorf("CHECK %s: %v", id, err)
	}
	if err := host.DelList(replacedNetwork, rt); err != nil {
		t.Errorf("DEL %s: %v", id, err)
	}
}

// anotherRelease returns a cnibox of other content: with something behind what the kernel looks at.
func anotherRelease(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(netlab.Cnibox(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cnibox")
	if err := os.WriteFile(path, append(content, "another release"...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
