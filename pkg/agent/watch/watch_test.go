package watch_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/pkg/agent/watch"
	"github.com/cnibox/cnibox/test/netlab"
)

// conflist is one of everything that a watch may see.
func conflist(t testing.TB, backend string) string {
	shaping := ""
	if netlab.Has(t, netlab.Shaping) {
		shaping = `{"type": "bandwidth", "ingressRate": 100000000, "ingressBurst": 100000000, "egressRate": 100000000, "egressBurst": 100000000},`
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "demo", "plugins": [
		{"type": "bridge", "bridge": "demo0", "isGateway": true, "ipMasq": true, "ipMasqBackend": %q, "hairpinMode": true,
		 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "fd00:1::/64"}]],
		          "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
		{"type": "portmap", "backend": %[1]q, "snat": true, "capabilities": {"portMappings": true}},
		{"type": "firewall", "backend": %[1]q}, %[2]s
		{"type": "tuning", "mac": "02:00:00:00:00:01", "sysctl": {"net.ipv4.conf.all.log_martians": "0"}},
		{"type": "sbr"}]}`, backend, shaping)
}

var names = []string{"bridge", "host-local", "portmap", "firewall", "bandwidth", "tuning", "sbr"}

// attach makes and removes many attachments, some at once.
func attach(t testing.TB, h *netlab.Host, list string, verb func(string, *netlab.Pod, map[string]any) error, pods []*netlab.Pod, atOnce int) {
	t.Helper()
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, pod := range pods {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			caps := map[string]any{"portMappings": []map[string]any{{"hostPort": 10000 + i, "containerPort": 80, "protocol": "tcp"}}}
			if err := verb(list, pod, caps); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func pods(t testing.TB, h *netlab.Host, n int) (list []*netlab.Pod) {
	t.Helper()
	for i := range n {
		list = append(list, h.NewPod(t, fmt.Sprintf("pod%d", i)))
	}
	return list
}

func TestOwnDoingsAreNoHits(t *testing.T) {
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			host := netlab.NewHost(t)
			host.InstallPlugins(t, names...)
			list, all := conflist(t, backend), pods(t, host, 10)
			w := watchHost(t, host)
			add := func(list string, p *netlab.Pod, caps map[string]any) error {
				_, err := host.AddList(list, p.RuntimeConf(caps))
				return err
			}
			del := func(list string, p *netlab.Pod, caps map[string]any) error {
				return host.DelList(list, p.RuntimeConf(caps))
			}
			attach(t, host, list, add, all, 4)
			w.settle(host)
			t.Log("ADD\n", describeAll(w.all()))
			attach(t, host, list, del, all, 4)
			w.settle(host)
			t.Log("DEL\n", describeAll(w.all()))
			t.Log(w.stop())
		})
	}
}

func TestHits(t *testing.T) {
	host := netlab.NewHost(t)
	w := watchHost(t, host)
	host.MustRun(t, "ip", "link", "add", "demo0", "type", "bridge")
	host.MustRun(t, "ip", "addr", "add", "10.1.0.1/16", "dev", "demo0")
	host.MustRun(t, "ip", "addr", "del", "10.1.0.1/16", "dev", "demo0")
	hit := w.await(watch.Link, "10.1.0.1/16")
	t.Log(hit)
	w.settle(host)
	t.Log(describeAll(w.all()))
}
