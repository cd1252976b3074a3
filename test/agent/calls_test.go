package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestBesideCalls has containers come and go while the agent looks at all of them every second. Plugins are killed in the middle of an ADD or
// a DEL, and half of the namespaces are gone before their DEL. The agent repairs nothing that is being made or taken away, collects nothing,
// and in the end nothing is left.
func TestBesideCalls(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	var stay []*harmtest.Container
	list := harmtest.Conflist(harmtest.Limited)
	for i := range 3 {
		stay = append(stay, harmtest.Attach(t, host, list, fmt.Sprint("stays", i), port(9000+i)))
	}
	a := start(t, host, "--every", "1s", "--grace", netlab.Patience.String())
	before := host.Snapshot(t)
	const workers = 4
	each, killed := chosen(30, 125), make([]int, workers)
	var callers sync.WaitGroup
	for w := range workers {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range each {
				if comeAndGo(t, host, list, fmt.Sprintf("comes%d-%d", w, i), 8000+w, random) {
					killed[w]++
				}
			}
		})
	}
	callers.Wait()
	t.Logf("of %d containers, plugins of %v were killed", workers*each, killed)
	for _, what := range []string{`msg="put back"`, "msg=collected", "can't be put back", "can't be collected", "again and again"} {
		if lines := a.log.lines(what); len(lines) > 0 {
			t.Errorf("%d lines say %s:\n%s", len(lines), what, strings.Join(lines[:min(len(lines), 5)], ""))
		}
	}
	if diff := before.Diff(host.Snapshot(t), ofAgent...); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
	for i, c := range stay {
		lives(t, host, c, 9000+i)
	}
	if s := a.status(); len(s.Findings) > 0 || s.Repaired > 0 {
		t.Errorf("status: %+v", s)
	}
}

// comeAndGo makes a container and takes it away, and reports whether a plugin was killed in an ADD or a DEL.
func comeAndGo(t *testing.T, host *netlab.Host, list, name string, number int, random *rand.Rand) (killed bool) {
	pod := host.NewPod(t, name)
	rt := pod.RuntimeConf(port(number))
	killsADD, killsDEL, losesNamespace := random.IntN(4) == 0, random.IntN(4) == 0, random.IntN(2) == 0
	wait := func() {}
	if err := call(host, list, killsADD, random, func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		_, err := cni.AddNetworkList(ctx, list, rt)
		return err
	}); err != nil {
		killed = true
		if !killsADD {
			t.Errorf("ADD of %s: %v", name, err)
		}
	}
	if losesNamespace {
		wait = pod.BeginDelete(t)
	}
	del := func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.DelNetworkList(ctx, list, rt)
	}
	if killsDEL {
		killed = call(host, list, true, random, del) != nil || killed
	}
	if err := call(host, list, false, random, del); err != nil {
		t.Errorf("DEL of %s: %v", name, err)
	}
	if wait(); !losesNamespace {
		pod.Delete(t)
	}
	return killed
}

// call makes a call of libcni. If it is to be killed, the plugin that runs after some milliseconds is, with kill -9.
func call(host *netlab.Host, conflist string, kills bool, random *rand.Rand, do func(context.Context, libcni.CNI, *libcni.NetworkConfigList) error) (err error) {
	list, err := libcni.NetworkConfFromBytes([]byte(conflist))
	if err != nil {
		return err
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{netlab.PluginDir}, netlab.CacheDir, host.Executor())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if kills {
		after := time.Duration(random.IntN(20_000)) * time.Microsecond
		go func() { netlab.Pause(after); stop() }()
	}
	host.Do(func() { err = do(ctx, cni, list) })
	return err
}
