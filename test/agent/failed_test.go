package agent

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// withThird is a network with a third plugin.
func withThird(plugin string) string {
	return harmtest.Conflist(`{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/22"}]]}},
		{"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "` + plugin + `"}`)
}

// thirds are plugins that fail at ADD and at DEL. The first is not there.
var thirds = map[string]string{
	"missing": "",
	"failing": `echo '{"cniVersion": "1.1.0", "code": 100, "msg": "it fails"}'; exit 1`,
	"hanging": "exec sleep infinity",
	"killed":  "kill -KILL $$",
}

// failStart is what a runtime does for a container whose start fails: ADD and DEL, each for a while, and the namespace goes, which can be waited for.
func failStart(t testing.TB, host *netlab.Host, third, name string, number int) (wait func()) {
	t.Helper()
	list, err := libcni.NetworkConfFromBytes([]byte(withThird(third)))
	if err != nil {
		t.Fatal(err)
	}
	pod := host.NewPod(t, name)
	cni := libcni.NewCNIConfigWithCacheDir([]string{netlab.PluginDir}, netlab.CacheDir, host.Executor())
	rt := pod.RuntimeConf(port(number))
	add, del := netlab.Patience, netlab.Patience
	if third == "hanging" { // it is not waited for longer
		add, del = chosen(2500*time.Millisecond, 3*time.Second), 500*time.Millisecond
	}
	host.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), add)
		defer cancel()
		if _, err := cni.AddNetworkList(ctx, list, rt); err == nil {
			t.Errorf("the start of %s succeeded", name)
		}
		ctx, cancel = context.WithTimeout(t.Context(), del)
		defer cancel()
		if err := cni.DelNetworkList(ctx, list, rt); err == nil {
			t.Errorf("the DEL of %s succeeded", name)
		}
	})
	return pod.BeginDelete(t)
}

// TestFailedStarts: starts of containers fail in the middle, since a plugin is missing, fails, hangs or is killed, and so do their DELs. What
// they have left goes, by the agent or by one command. Nothing happens to containers that run beside them.
func TestFailedStarts(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"the agent", "one command"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			failedStarts(t, by)
		})
	}
}

func failedStarts(t *testing.T, by string) {
	host, _ := newHost(t)
	for name, script := range thirds {
		if script != "" {
			host.Feed(t, "#!/bin/sh\n"+script+"\n", "sh", "-c", "cat >"+netlab.PluginDir+"/"+name+" && chmod +x "+netlab.PluginDir+"/"+name)
		}
	}
	var living []*harmtest.Container
	var connections []net.Conn
	for i := range chosen(3, 50) {
		c := harmtest.Attach(t, host, withThird("tuning"), fmt.Sprint("lives", i), port(7000+i))
		c.Serve(t)
		living, connections = append(living, c), append(connections, harmtest.Dial(t, &host.Namespace, c.Address+":80"))
	}
	left := func() (leases, links, rules int) {
		ruleset := host.MustRun(t, "nft", "list", "ruleset")
		for _, c := range living {
			ruleset = strings.ReplaceAll(ruleset, c.ID[:20], "living")
		}
		return strings.Count(host.MustRun(t, "ls", "/var/lib/cni/networks/demo"), "10.88.") - len(living),
			strings.Count(host.MustRun(t, "ip", "-o", "link", "show", "master", "demo0"), "\n") - len(living), strings.Count(ruleset, "demo/") - strings.Count(ruleset, "demo/living")
	}
	isLeft := func() bool {
		leases, links, rules := left()
		return leases+links+rules > 0
	}
	var a *running
	if by == "the agent" {
		a = start(t, host, chosen([]string{"--grace", "0s", "--every", "1s"}, nil)...)
	}
	count := 0
	var waits []func()
	for third := range thirds {
		for range chosen(2, 50) {
			waits = append(waits, failStart(t, host, third, fmt.Sprint(third, count), 8000+count))
			count++
		}
	}
	ended := time.Now()
	leases, links, rules := left()
	t.Logf("%d starts have failed, and left %d leases, %d links, %d rules", count, leases, links, rules)
	if leases == 0 || rules == 0 {
		t.Error("nothing is left of them: there is nothing to collect")
	}
	if !*long {
		age(t, host)
	}
	if a == nil {
		for _, wait := range waits { // the command looks once, and takes whoever has a link for alive
			wait()
		}
		netlab.Until(t, "what is left to be a minute old", func() bool { return !*long || time.Since(ended) > time.Minute+time.Second })
		t.Log(host.MustRun(t, netlab.Cnictl(t), "gc", "--apply"))
	}
	netlab.Until(t, "all of it to be collected", func() bool { return !isLeft() })
	leases, links, rules = left()
	t.Logf("%v after the last one there are %d leases, %d links, %d rules of theirs", time.Since(ended).Round(time.Second), leases, links, rules)
	for i, c := range living {
		if err := harmtest.Echo(connections[i]); err != nil {
			t.Errorf("the connection to %s: %v", c.Name(), err)
		}
		if err := host.CheckList(c.List, c.RuntimeConf(port(7000+i))); err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
	}
	if a != nil && a.log.count(`msg="put back"`) > 0 {
		t.Error("the agent has repaired something")
	}
}
