package netlab

import (
	"strings"
	"syscall"
	"testing"
)

// Etcd is a cluster of one member.
type Etcd struct{ process *process }

// ServeEtcd starts etcd on the Host, at addresses that it is given on lo if they are not 127.0.0.1. Its data stays in the Host's /run/etcd, so that it
// can be started again. It has to be installed (make setup).
func (h *Host) ServeEtcd(t testing.TB, addresses ...string) *Etcd {
	t.Helper()
	var urls []string
	for _, a := range addresses {
		if !strings.HasPrefix(a, "127.") {
			h.MustRun(t, "ip", "address", "replace", a+"/32", "dev", "lo")
		}
		urls = append(urls, "http://"+a+":2379")
	}
	list := strings.Join(urls, ",")
	process := h.run(t, h.Command("etcd", "--name", "etcd", "--data-dir", "/run/etcd", "--log-level", "error", "--listen-client-urls", list, "--advertise-client-urls", list,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380", "--initial-cluster", "etcd=http://127.0.0.1:2380"))
	Eventually(t, func() error {
		_, err := h.Output(h.Command("etcdctl", "--endpoints", urls[0], "--command-timeout", "1s", "endpoint", "health"))
		return err
	})
	return &Etcd{process}
}

// Stop kills it.
func (e *Etcd) Stop(t testing.TB) {
	t.Helper()
	e.process.stop(t, syscall.SIGKILL)
}
