package watch_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestFirewalld(t *testing.T) {
	host := netlab.NewHost(t)
	w := watchHost(t, host) // before there is a bus
	firewalld := firewalldtest.Start(t, host, "nftables")
	w.await(watch.Filter, "firewalld was started")
	firewalld.Reload(t)
	w.await(watch.Filter, "firewalld was reloaded")

	w = watchHost(t, host)
	firewalld.Reload(t)
	w.await(watch.Filter, "firewalld was reloaded")
	for _, hit := range w.others() {
		if hit.What == "firewalld was started" {
			t.Errorf("%+v: it ran before", hit)
		}
	}
	firewalld.Stop(t)
	firewalld.Run(t)
	w.await(watch.Filter, "firewalld was started")
}

func TestLegacyIPTables(t *testing.T) {
	host := netlab.NewHost(t)
	host.UseIPTables(t, "legacy")
	host.InstallPlugins(t, names...)
	list, all := conflist(t, "iptables"), pods(t, host, 3)
	add, del := verbs(host)
	add.do(t, list, all, 1)
	w := watchHost(t, host)
	del.do(t, list, all[1:], 1)
	host.MustRun(t, "iptables-legacy", "-t", "nat", "-D", "PREROUTING", "1")
	hit := w.await(watch.Filter, "rules were deleted from table nat of iptables-legacy")
	t.Log(hit)
	host.MustRun(t, "ip6tables-legacy", "-F")
	w.await(watch.Filter, "rules were deleted from table filter of ip6tables-legacy")
	isOfNamespace := func(h watch.Hit) bool { return h.Kind != watch.Filter } // what a slow DEL does there may look like a hit
	if others := slices.DeleteFunc(w.others(), isOfNamespace); len(others) > 2 {
		t.Errorf("DELs are hits:\n%s", describeAll(others))
	}
	if tables := host.MustRun(t, "cat", "/proc/net/ip_tables_names"); strings.Contains(tables, "mangle") {
		t.Errorf("the watch has made tables: %s", tables)
	}
}

func TestNodeWithoutIPTables(t *testing.T) {
	host := netlab.NewHost(t)
	w := watchHost(t, host)
	w.settle(host)
	w.stop()
	if tables := host.MustRun(t, "cat", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"); tables != "" {
		t.Errorf("the watch has made tables of iptables-legacy: %s", tables)
	}
}

// A macvlan that is made in its namespace gives it no number.
func TestNumber(t *testing.T) {
	host := netlab.NewHost(t)
	host.MustRun(t, "ip", "link", "add", "up0", "type", "veth", "peer", "up1")
	host.InstallPlugins(t, "macvlan", "static")
	pod := host.NewPod(t, "web")
	list := `{"cniVersion": "1.0.0", "name": "seg", "plugins": [{"type": "macvlan", "master": "up0",
		"ipam": {"type": "static", "addresses": [{"address": "10.7.0.2/24"}]}}]}`
	if _, err := host.AddList(list, pod.RuntimeConf(nil)); err != nil {
		t.Fatal(err)
	}
	a := attached{Host: host, pod: pod}
	first, err := numberOf(a)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := numberOf(a); again != first || err != nil {
		t.Errorf("its number was %d and is %d (%v)", first, again, err)
	}
	w := watchHost(t, host)
	pod.MustRun(t, "ip", "addr", "del", "10.7.0.2/24", "dev", "eth0")
	if hit := w.await(watch.Inside, "address 10.7.0.2/24 of eth0"); hit.NSID != first {
		t.Errorf("%+v is not of namespace %d", hit, first)
	}
	pod.Delete(t)
	w.await(watch.Ended, "has ended")
}

// Root in a container can send to the groups that the watch listens to.
func TestForgedEvents(t *testing.T) {
	a := attachOne(t, "nftables")
	w := watchHost(t, a.Host)
	send := func(kind uint16, group int, body []byte) {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
		m = binary.NativeEndian.AppendUint16(m, kind)
		m = append(append(m, make([]byte, 10)...), body...)
		if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (group - 1)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, where := range []func(func()){a.pod.Do, a.Do} {
		where(func() {
			send(unix.RTM_DELRULE, unix.RTNLGRP_IPV4_RULE, make([]byte, 12))
			send(unix.RTM_DELNSID, unix.RTNLGRP_NSID, []byte{0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 0})
		})
	}
	w.settle(a.Host)
	if others := w.others(); len(others) > 0 {
		t.Errorf("taken for the kernel's:\n%s", describeAll(others))
	}
}

// A watch that is not asked for long keeps little, and still says that something was hit.
func TestMuchIsHit(t *testing.T) {
	a := attachOne(t, "nftables")
	w := watchHost(t, a.Host)
	var commands strings.Builder
	for range 2000 {
		commands.WriteString("addr add 10.200.0.1/32 dev demo0\naddr del 10.200.0.1/32 dev demo0\n")
	}
	a.Feed(t, commands.String(), "ip", "-batch", "-")
	w.settle(a.Host)
	for _, hit := range w.others() {
		if hit.Link != "demo0" && hit.Kind != watch.Filter {
			t.Errorf("%+v", hit)
		}
	}
}

// BenchmarkChurn attaches and detaches 250 containers at once, and says what it costs the watch, and what the rest.
func BenchmarkChurn(b *testing.B) {
	host := netlab.NewHost(b)
	host.InstallPlugins(b, names...)
	list, all := conflist(b, "nftables"), pods(b, host, 250)
	add, del := verbs(host)
	var cpu, plugins time.Duration
	hits := 0
	for b.Loop() {
		before := children()
		w := watchHost(b, host)
		add.do(b, list, all, len(all))
		del.do(b, list, all, len(all))
		w.settle(host)
		hits += len(w.others())
		plugins += children() - before
		cpu += w.stop()
	}
	b.ReportMetric(cpu.Seconds()/float64(b.N), "watch-s")
	b.ReportMetric(plugins.Seconds()/float64(b.N), "plugins-s")
	b.ReportMetric(float64(hits)/float64(b.N), "hits")
}

// children returns the CPU time of processes that have ended.
func children() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
