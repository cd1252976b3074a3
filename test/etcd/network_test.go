package etcd

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/test/netlab"
)

type netConn = net.Conn

// network is one that all hosts are on.
type network struct {
	name   string
	ranges string         // in JSON
	etcd   map[string]any // more keys of ipam.etcd
	more   map[string]any // more keys of the configuration, such as prevResult
	args   string         // CNI_ARGS
	ifName string         // "" is eth0
}

// with returns the network with more keys of ipam.etcd.
func (n network) with(key string, value any) network {
	n.etcd = maps.Clone(n.etcd)
	if n.etcd == nil {
		n.etcd = map[string]any{}
	}
	n.etcd[key] = value
	return n
}

// withMore returns the network with another key of the configuration.
func (n network) withMore(key string, value any) network {
	n.more = map[string]any{key: value}
	return n
}

const prefix = "/cnibox"

// ipam is the object ipam of the network on a host.
func (h *host) ipam(n network) map[string]any {
	settings := map[string]any{"endpoints": h.cluster.endpoints(), "host": h.name, "timeoutSeconds": 60} // on a busy machine
	if h.cluster.authority != nil {
		maps.Copy(settings, h.cluster.authority.keys())
	}
	maps.Copy(settings, n.etcd)
	return map[string]any{"type": "etcd", "ranges": json.RawMessage(n.ranges), "etcd": settings}
}

func (h *host) call(verb, id string, n network) netlab.PluginCall {
	config := map[string]any{"cniVersion": "1.1.0", "name": n.name, "type": "macvlan", "ipam": h.ipam(n)}
	maps.Copy(config, n.more)
	call := netlab.PluginCall{Command: verb, ContainerID: id, Netns: h.pod.Path(), IfName: "eth0", Args: n.args, Path: netlab.PluginDir, Config: config}
	if n.ifName != "" {
		call.IfName = n.ifName
	}
	return call
}

// do calls the plugin.
func (h *host) do(t testing.TB, verb, id string, n network) netlab.PluginResult {
	t.Helper()
	return h.Exec(t, "etcd", h.call(verb, id, n))
}

// must calls the plugin, which has to succeed.
func (h *host) must(t testing.TB, verb, id string, n network) netlab.PluginResult {
	t.Helper()
	r := h.do(t, verb, id, n)
	if r.ExitCode != 0 {
		t.Fatalf("%s of %s on %s: %s", verb, id, h.name, r)
	}
	if r.Stderr != "" { // such as a DEL that etcd did not carry out, and that is noted
		t.Logf("%s of %s on %s: %s", verb, id, h.name, r)
	}
	return r
}

// awaitReady waits until STATUS is content. A STATUS has four seconds, whatever timeoutSeconds is: on a busy machine etcd may need more for the first one.
func (h *host) awaitReady(t testing.TB, n network) {
	t.Helper()
	netlab.Eventually(t, func() error {
		r := h.do(t, "STATUS", "", n)
		if r.Error != nil && r.Error.Code != 50 {
			t.Fatalf("STATUS on %s: %s", h.name, r)
		}
		if r.ExitCode != 0 {
			return fmt.Errorf("STATUS on %s: %s", h.name, r)
		}
		return nil
	})
}

// add attaches a container, and returns its addresses.
func (h *host) add(t testing.TB, id string, n network) []netip.Addr {
	t.Helper()
	return addressesOf(t, h.must(t, "ADD", id, n))
}

// refuses makes sure that a call fails with this code and these words. It is made again if no member answers, as while they elect a leader.
func (h *host) refuses(t testing.TB, verb, id string, n network, code uint, words ...string) {
	t.Helper()
	netlab.Eventually(t, func() error {
		r := h.do(t, verb, id, n)
		isRight := r.Error != nil && r.Error.Code == code
		for _, w := range words {
			isRight = isRight && strings.Contains(r.Error.Msg+r.Error.Details, w)
		}
		if isRight {
			return nil
		}
		err := fmt.Errorf("%s of %s on %s: %s; want code %d with %q", verb, id, h.name, r, code, words)
		if r.Error == nil || !strings.Contains(r.Error.Msg, "no member of the etcd cluster answers") {
			t.Fatal(err)
		}
		return err
	})
}

// keep has the host renew its lease and free what is left open, as the agent does.
func (h *host) keep(t testing.TB, n network) {
	t.Helper()
	if err := h.tryKeep(n); err != nil {
		t.Fatal(err)
	}
}

func (h *host) tryKeep(n network) error {
	_, err := h.askKeep(n)
	return err
}

func (h *host) askKeep(n network) (*shared.Report, error) {
	config, err := json.Marshal(h.call("", "", n).Config)
	if err != nil {
		return nil, err
	}
	cmd := h.Command("sh", "-ec", `mkdir -p /run/$1; cat >/run/$1/$$.conf; mv /run/$1/$$.conf /run/$1/net.conf
		exec "$0" leases keep "$1" --conf-dir /run/$1 --json`, h.cluster.cnictl, n.name)
	cmd.Stdin = strings.NewReader(string(config))
	out, err := h.Output(cmd)
	var kept []struct{ Report *shared.Report }
	if err == nil {
		err = json.Unmarshal([]byte(out), &kept)
	}
	if err != nil || len(kept) != 1 {
		return nil, fmt.Errorf("keep on %s: %v: %s", h.name, err, out)
	}
	return kept[0].Report, nil
}

func addressesOf(t testing.TB, r netlab.PluginResult) (list []netip.Addr) {
	t.Helper()
	for _, ip := range r.Result(t).IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		list = append(list, a.Unmap())
	}
	return list
}

// holding is what etcd has of a network: HOST/CONTAINER/INTERFACE of each address.
type holding map[netip.Addr]string

func keyOf(a netip.Addr) string {
	if a.Is4() {
		return "ipv4/" + hex.EncodeToString(a.AsSlice())
	}
	return "ipv6/" + hex.EncodeToString(a.AsSlice())
}

// held reads what etcd has of a network, and makes sure that the keys of addresses and of attachments say the same.
func (c *cluster) held(t testing.TB, n network) holding {
	t.Helper()
	root := prefix + "/" + n.name + "/"
	var answer *clientv3.GetResponse
	netlab.Eventually(t, func() (err error) {
		ctx, end := context.WithTimeout(context.Background(), silence)
		defer end()
		answer, err = c.client.Get(ctx, root, clientv3.WithPrefix())
		return err
	})
	byAddress, byAttachment := holding{}, holding{}
	for _, kv := range answer.Kvs {
		part := strings.Split(strings.TrimPrefix(string(kv.Key), root), "/")
		switch part[0] {
		case "ipv4", "ipv6":
			var v struct {
				Address                   netip.Addr
				Host, ContainerID, IfName string
			}
			if err := json.Unmarshal(kv.Value, &v); err != nil || keyOf(v.Address) != part[0]+"/"+part[1] {
				t.Errorf("%s: %s", kv.Key, kv.Value)
			}
			byAddress[v.Address] = v.Host + "/" + v.ContainerID + "/" + v.IfName
		case "attachments":
			digits, _ := hex.DecodeString(part[4])
			a, _ := netip.AddrFromSlice(digits)
			byAttachment[a] = strings.Join(part[1:4], "/")
		}
	}
	if !maps.Equal(byAddress, byAttachment) {
		t.Errorf("addresses: %v\nattachments: %v", byAddress, byAttachment)
	}
	return byAddress
}

// holds makes sure that etcd has of a network what it should, and nothing else.
func (c *cluster) holds(t testing.TB, n network, want holding) {
	t.Helper()
	if got := c.held(t, n); !maps.Equal(got, want) {
		t.Errorf("etcd has of %s\n%v\nwant\n%v", n.name, got, want)
	}
}

// set adds addresses of an attachment.
func (w holding) set(h *host, id string, addresses ...netip.Addr) holding {
	for _, a := range addresses {
		w[a] = h.name + "/" + id + "/eth0"
	}
	return w
}

// fill has somebody take addresses, up to so many from the first on, but for some.
func (c *cluster) fill(t testing.TB, n network, first netip.Addr, count int, but ...netip.Addr) {
	t.Helper()
	root, a := prefix+"/"+n.name+"/", first
	var list []netip.Addr
	for range count {
		if !slices.Contains(but, a) {
			list = append(list, a)
		}
		a = a.Next()
	}
	for some := range slices.Chunk(list, 60) {
		var puts []clientv3.Op
		for _, a := range some {
			digits := hex.EncodeToString(a.AsSlice())
			puts = append(puts,
				clientv3.OpPut(root+keyOf(a), fmt.Sprintf(`{"address":%q,"host":"elsewhere","containerID":"c%s","ifname":"eth0"}`, a, digits)),
				clientv3.OpPut(root+"attachments/elsewhere/c"+digits+"/eth0/"+digits, "2026-01-01T00:00:00Z"))
		}
		c.commit(t, puts...)
	}
}

// commit has etcd do something that can be done twice. Its client does not repeat what writes, such as when a leader is lost.
func (c *cluster) commit(t testing.TB, operations ...clientv3.Op) {
	t.Helper()
	netlab.Eventually(t, func() error {
		_, err := c.client.Txn(context.Background()).Then(operations...).Commit()
		return err
	})
}

// each does something on all hosts at once, so many times on each.
func (c *cluster) each(atOnce int, do func(h *host, worker int)) {
	done := make(chan bool)
	for _, h := range c.hosts {
		for worker := range atOnce {
			go func() {
				defer func() { done <- true }()
				do(h, worker)
			}()
		}
	}
	for range atOnce * len(c.hosts) {
		<-done
	}
}

func toJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
