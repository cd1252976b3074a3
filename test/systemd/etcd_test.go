package systemd

import (
	"strings"
	"testing"
)

const shared = `{"cniVersion": "1.1.0", "name": "shared", "plugins": [{"type": "bridge", "bridge": "shared0", "ipam": {
	"type": "etcd", "etcd": {"endpoints": ["http://127.0.0.1:2379"], "timeoutSeconds": 2}, "ranges": [[{"subnet": "10.70.0.0/24"}]]}}]}`

// TestEtcd: the timer's unit delivers a DEL that etcd did not hear of, with no more rights than it has.
func TestEtcd(t *testing.T) {
	installTools(t)
	install(t, "/etc/cni/net.d/20-shared.conflist", []byte(shared))
	const start = `ip link set lo up; etcd --data-dir /run/etcd >>/run/etcd.log 2>&1 & echo $! >/run/etcd.pid
		until etcdctl endpoint health >/dev/null 2>&1; do kill -0 $(cat /run/etcd.pid) || { cat /run/etcd.log; exit 1; }; done; `
	must(t, start+`ip netns add etcd; cnictl add shared /run/netns/etcd --id pod`)
	must(t, `kill $(cat /run/etcd.pid); cnictl del shared /run/netns/etcd --id pod`)
	if open := must(t, "ls /var/lib/cni/etcd/shared/open"); !strings.Contains(open, "pod:eth0") {
		t.Errorf("to be freed is %q", open)
	}
	must(t, start+`systemctl start cnibox-etcd || { tail -5 `+said+`; exit 1; }`)
	if left := must(t, "etcdctl get --prefix --keys-only /cnibox/shared/ipv4/"); left != "" {
		t.Errorf("etcd has\n%s", left)
	}
	must(t, "systemctl enable --now cnibox-etcd.timer; systemctl is-active cnibox-etcd.timer; kill $(cat /run/etcd.pid)")
}
