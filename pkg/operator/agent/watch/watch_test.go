package watch_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
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

func caps(i int) map[string]any {
	return map[string]any{"portMappings": []map[string]any{{"hostPort": 10000 + i, "containerPort": 80, "protocol": "tcp"}}}
}

// attached is a host with one attachment, and names of what it has.
type attached struct {
	*netlab.Host
	pod  *netlab.Pod
	veth string
	list string
}

func attachOne(t testing.TB, backend string) attached {
	t.Helper()
	host := netlab.NewHost(t)
	if backend == "iptables" {
		host.UseIPTables(t, "nft")
	}
	host.InstallPlugins(t, names...)
	a := attached{Host: host, pod: host.NewPod(t, "web"), list: conflist(t, backend)}
	result, err := host.AddList(a.list, a.pod.RuntimeConf(caps(0)))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range result.Interfaces {
		if i.Sandbox == "" && strings.HasPrefix(i.Name, "veth") {
			a.veth = i.Name
		}
	}
	return a
}

// replace puts names of links into a text.
func (a attached) replace(text string) string { return strings.ReplaceAll(text, "VETH", a.veth) }

func TestHits(t *testing.T) {
	type row struct {
		backend, command string
		inside           bool
		kind             watch.Kind
		what, by, link   string
		needs            *netlab.Feature
	}
	shaping := &netlab.Shaping
	filter := func(backend, command, what, by string) row {
		return row{backend: backend, command: command, kind: watch.Filter, what: what, by: by}
	}
	link := func(command, what, by, link string) row {
		return row{backend: "nftables", command: command, kind: watch.Link, what: what, by: by, link: link}
	}
	inside := func(command, what string) row {
		return row{backend: "nftables", command: command, inside: true, kind: watch.Inside, what: what}
	}
	shaped := func(r row) row {
		r.needs = shaping
		return r
	}
	const sbrTable = `$(ip rule | sed -n 's/.*lookup \([0-9]*\) .*/\1/p')`
	const iptablesHit = "rules of iptables were deleted from table ip "
	for _, r := range []row{
		filter("nftables", "nft flush ruleset", "table inet cnibox was deleted", "nft (pid "),
		filter("nftables", "nft delete table inet cnibox-forward", "table inet cnibox-forward was deleted", "nft (pid "),
		filter("nftables", "nft flush table inet cnibox", "of table inet cnibox were deleted", "nft (pid "),
		filter("nftables", "nft flush chain inet cnibox dnat_v1", "rules of chain dnat_v1 of table inet cnibox were deleted", "nft (pid "),
		filter("nftables", "nft flush map inet cnibox owners_v1", "elements of set owners_v1 of table inet cnibox were deleted", "nft (pid "),
		filter("nftables", "nft add table inet cnibox-egress; nft add chain inet cnibox-egress judge_v1; nft add rule inet cnibox-egress judge_v1 accept",
			"rules were added to chain judge_v1 of table inet cnibox-egress", "nft (pid "),
		filter("iptables", "iptables -t nat -F", iptablesHit+"nat", "iptables (pid "),
		filter("iptables", "iptables -t nat -F POSTROUTING", iptablesHit+"nat", "iptables (pid "),
		filter("iptables", "iptables -t nat -F CNI-HOSTPORT-DNAT", iptablesHit+"nat", "iptables (pid "),
		filter("iptables", "iptables -F", iptablesHit+"filter", "iptables (pid "),
		filter("iptables", "iptables -t raw -F", iptablesHit+"raw", "iptables (pid "),
		filter("iptables", "ip6tables -F FORWARD", "rules of iptables were deleted from table ip6 filter", "ip6tables (pid "),
		filter("iptables", "printf '*nat\nCOMMIT\n' | iptables-restore", iptablesHit+"nat", "iptables-restor (pid "),
		filter("iptables", "nft flush ruleset", iptablesHit+"nat", "nft (pid "),
		filter("nftables", "sysctl -w net.ipv4.ip_forward=0", "forwarding of IPv4 was turned off", ""),
		filter("nftables", "sysctl -w net.ipv6.conf.all.forwarding=0", "forwarding of IPv6 was turned off", ""),
		link("ip addr del 10.1.0.1/16 dev demo0", "address 10.1.0.1/16 of demo0 was deleted", "ip (pid ", "demo0"),
		link("ip addr del fd00:1::1/64 dev demo0", "address fd00:1::1/64 of demo0 was deleted", "", "demo0"),
		link("ip route add 10.9.0.0/16 dev demo0; ip route del 10.9.0.0/16", "route 10.9.0.0/16 of demo0 was deleted", "ip (pid ", "demo0"),
		link("ip route del 10.1.0.0/16 dev demo0", "route 10.1.0.0/16 of demo0 was deleted", "ip (pid ", "demo0"),
		link("ip link set VETH nomaster", "VETH was taken out of its bridge", "", "VETH"),
		link("ip link set VETH down", "VETH was set down", "", "VETH"),
		link("ip link set demo0 down", "demo0 was set down", "", "demo0"),
		link("ip link del demo0", "bridge demo0 was deleted", "", "demo0"),
		shaped(link("tc qdisc del dev VETH root", "qdisc tbf of VETH was deleted", "tc (pid ", "VETH")),
		shaped(link("tc qdisc del dev VETH ingress", "qdisc ingress of VETH was deleted", "tc (pid ", "VETH")),
		shaped(link("tc filter del dev VETH parent ffff:", "filter u32 of VETH was deleted", "tc (pid ", "VETH")),
		shaped(link("ip link del $(ip -o link show type ifb | grep -o 'bwp[0-9a-f]*')", "ifb bwp", "", "bwp")),
		inside("ip addr flush dev eth0", "address 10.1.0.2/16 of eth0 in namespace"),
		inside("ip route flush table "+sbrTable, "route default of eth0 in namespace"),
		inside("ip -6 route del default table "+strings.Replace(sbrTable, "ip", "ip -6", 1), "route default of eth0 in namespace"),
		inside("ip rule del pref $(ip rule | grep -o '^[0-9]*' | sed -n 2p)", "rule for routes of namespace"),
		inside("ip link set eth0 down", "eth0 in namespace"),
	} {
		t.Run(r.backend+" "+r.command, func(t *testing.T) {
			if r.needs != nil {
				netlab.Need(t, *r.needs)
			}
			a := attachOne(t, r.backend)
			w := watchHost(t, a.Host)
			where := &a.Namespace
			if r.inside {
				where = &a.pod.Namespace
			}
			where.MustRun(t, "env", "PATH="+a.Path(), "sh", "-ec", a.replace(r.command))
			hit := w.await(r.kind, a.replace(r.what))
			// The program may have ended before it was asked for its name.
			by := strings.HasPrefix(hit.By, r.by) || r.kind == watch.Link && strings.HasPrefix(hit.By, "(pid ")
			if !by || r.by == "" && hit.By != "" {
				t.Errorf("by %q, not %q: %+v", hit.By, r.by, hit)
			}
			if !strings.HasPrefix(hit.Link, a.replace(r.link)) {
				t.Errorf("it is a hit of link %q, not %q", hit.Link, a.replace(r.link))
			}
			if n, err := numberOf(a); r.kind == watch.Inside && (err != nil || n != hit.NSID) {
				t.Errorf("it is a hit of namespace %d, not %d (%v)", hit.NSID, n, err)
			}
			w.settle(a.Host)
			t.Log(describeAll(w.others()))
		})
	}
}

// TestByWhom has programs that do not end delete addresses: one of ours is not heard, and another one is named.
func TestByWhom(t *testing.T) {
	a := attachOne(t, "nftables")
	w := watchHost(t, a.Host)
	run := func(name, batch string) {
		t.Helper()
		program := filepath.Join(t.TempDir(), name)
		a.MustRun(t, "sh", "-c", "cp $(command -v ip) "+program)
		cmd := a.Command(program, "-batch", "-")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = a.Start(cmd)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
		if _, err := io.WriteString(in, batch); err != nil {
			t.Fatal(err)
		}
	}
	run("bridge", "address del 10.1.0.1/16 dev demo0\n")
	netlab.Until(t, "it to be deleted", func() bool { return a.MustRun(t, "ip", "-4", "address", "show", "dev", "demo0") == "" })
	w.settle(a.Host)
	if hits := w.others(); len(hits) > 0 {
		t.Errorf("our own doings are hits: %s", describeAll(hits))
	}
	run("foreign", "address add 10.9.0.1/16 dev demo0\naddress del 10.9.0.1/16 dev demo0\n")
	if hit := w.await(watch.Link, "address 10.9.0.1/16 of demo0 was deleted"); !strings.HasPrefix(hit.By, "foreign (pid ") {
		t.Errorf("by %q", hit.By)
	}
}

// numberOf returns the number of the pod's namespace in the host's eyes.
func numberOf(a attached) (n int, err error) {
	a.Do(func() {
		var file *os.File
		if file, err = os.Open(a.pod.Path()); err != nil {
			return
		}
		defer file.Close()
		n, err = watch.Number(int(file.Fd()))
	})
	return n, err
}

func TestEndedNamespace(t *testing.T) {
	a := attachOne(t, "nftables")
	number, err := numberOf(a)
	if err != nil {
		t.Fatal(err)
	}
	w := watchHost(t, a.Host)
	a.pod.Delete(t)
	if hit := w.await(watch.Ended, "has ended"); hit.NSID != number {
		t.Errorf("%+v is not of namespace %d", hit, number)
	}
	w.settle(a.Host)
	if others := w.others(); len(others) != 1 {
		t.Errorf("hits of a namespace that has ended: %s", describeAll(others))
	}
}

// verb is an ADD or a DEL.
type verb func(list string, pod *netlab.Pod, caps map[string]any) error

func verbs(h *netlab.Host) (add, del verb) {
	return func(list string, p *netlab.Pod, caps map[string]any) error {
			_, err := h.AddList(list, p.RuntimeConf(caps))
			return err
		}, func(list string, p *netlab.Pod, caps map[string]any) error {
			return h.DelList(list, p.RuntimeConf(caps))
		}
}

// do calls a verb for pods, some at once.
func (v verb) do(t testing.TB, list string, pods []*netlab.Pod, atOnce int) {
	t.Helper()
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, pod := range pods {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if err := v(list, pod, caps(i)); err != nil {
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
	for backend, count := range map[string]int{"nftables": 50, "iptables": 20} { // which takes ten times as long
		t.Run(backend, func(t *testing.T) {
			host := netlab.NewHost(t)
			if backend == "iptables" {
				host.UseIPTables(t, "nft")
			}
			host.InstallPlugins(t, names...)
			list, all := conflist(t, backend), pods(t, host, count)
			w := watchHost(t, host)
			add, del := verbs(host)
			add.do(t, list, all, 8)
			del.do(t, list, all, 8)
			w.settle(host)
			counts := map[watch.Kind]int{}
			for _, h := range w.others() {
				isNameless := h.Kind != watch.Filter && (h.By == "" || strings.HasPrefix(h.By, "(pid ")) // on a busy machine a plugin may have ended before it was asked for its name
				if !isNameless {
					counts[h.Kind]++
				}
			}
			t.Logf("%d ADDs and DELs: %v of CPU\n%s", count, w.stop(), describeAll(w.others()))
			if len(counts) > 0 {
				t.Errorf("ADDs and DELs are taken for somebody's who takes things away: %v", counts)
			}
		})
	}
}
