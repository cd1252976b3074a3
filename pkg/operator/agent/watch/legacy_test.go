package watch

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestLegacyLook(t *testing.T) {
	host := netlab.NewHost(t)
	host.UseIPTables(t, "legacy")
	host.InstallPlugins(t, "ptp", "host-local", "portmap")
	const list = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [
		{"type": "ptp", "ipMasq": true, "ipMasqBackend": "iptables", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "fd00:1::/64"}]]}},
		{"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}]}`
	s := sizes{}
	expect := func(after string, want ...string) {
		t.Helper()
		var got []string
		host.Do(func() { got = s.look() })
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("after %s: %q, not %q", after, got, want)
		}
	}
	expect("nothing")
	var pods []*netlab.Pod
	for i, name := range []string{"one", "two", "three"} {
		pod := host.NewPod(t, name)
		conf := pod.RuntimeConf(map[string]any{"portMappings": []map[string]any{{"hostPort": 10000 + i, "containerPort": 80, "protocol": "tcp"}}})
		if _, err := host.AddList(list, conf); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
		expect("an ADD")
	}
	if err := host.DelList(list, pods[0].RuntimeConf(nil)); err != nil {
		t.Fatal(err)
	}
	expect("a DEL")
	expect("nothing")
	host.MustRun(t, "iptables-legacy", "-t", "nat", "-A", "INPUT", "-j", "ACCEPT")
	expect("a rule of somebody else")
	if err := host.DelList(list, pods[1].RuntimeConf(nil)); err != nil {
		t.Fatal(err)
	}
	host.MustRun(t, "iptables-legacy", "-t", "nat", "-D", "PREROUTING", "1")
	expect("a DEL, and a rule of all", "rules were deleted from table nat of iptables-legacy")
	expect("nothing")
	host.MustRun(t, "ip6tables-legacy", "-t", "nat", "-F")
	expect("a flush", "rules were deleted from table nat of ip6tables-legacy")
}
