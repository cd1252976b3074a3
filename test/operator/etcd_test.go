package operator

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// endpoint is where etcd listens on a node of the tests.
const endpoint = "http://127.0.0.1:2379"

// inEtcd is the network demo with its addresses in etcd, and inFiles the same with host-local.
var (
	inFiles = strings.NewReplacer(`[{"subnet": "fd00:88::/64"}]`, `[{"subnet": "fd00:88::/64", "rangeStart": "fd00:88::10"}]`).Replace(demo)
	inEtcd  = strings.Replace(inFiles, `"type": "host-local",`, `"type": "etcd", "etcd": {"endpoints": ["`+endpoint+`"], "host": "one", "timeoutSeconds": 2},`, 1)
)

// shared is a node with etcd.
type shared struct {
	*operator
	etcd *netlab.Etcd
}

// newShared returns a node whose network demo has a configuration, and etcd on it.
func newShared(t *testing.T, network string) *shared {
	t.Helper()
	s := &shared{operator: newOperator(t)}
	s.host.InstallPlugins(t, "etcd")
	s.host.Feed(t, network, "sh", "-c", "cat >/etc/cni/net.d/10-demo.conflist")
	s.startEtcd()
	return s
}

func (s *shared) startEtcd() {
	s.Helper()
	s.etcd = s.host.ServeEtcd(s, "127.0.0.1")
}

func (s *shared) stopEtcd() {
	s.Helper()
	s.etcd.Stop(s)
}

// inEtcd lists the keys of attachments in etcd.
func (s *shared) inEtcd() string {
	s.Helper()
	return s.host.MustRun(s, "etcdctl", "--endpoints", endpoint, "get", "--prefix", "--keys-only", "/cnibox/demo/attachments/")
}

func (s *shared) says(printed string, parts ...string) {
	s.Helper()
	for _, part := range parts {
		if !strings.Contains(printed, part) {
			s.Errorf("%q is missing in\n%s", part, printed)
		}
	}
}

// TestSharedPool shows a pool in etcd that another host has a part of, with etcd and without it, and delivers a DEL that did not reach etcd.
func TestSharedPool(t *testing.T) {
	t.Parallel()
	s := newShared(t, inEtcd)
	_, address := s.attach("web")
	db, _ := s.attach("db")
	s.host.MustRun(t, "etcdctl", "--endpoints", endpoint, "put", "/cnibox/demo/ipv4/0a5800c8",
		`{"address":"10.88.0.200","host":"two","containerID":"else","ifname":"eth0"}`)
	s.says(s.must("show", "networks"), "10.88.0.0/24", "is shared by 1 host", "one, this one", "6 days")
	s.says(s.must("show", "networks", "--json"), `"two": 1`, `"one": 2`, `"used": 3`)
	s.says(s.must("show"), address)
	s.says(s.must("show", address), "address "+address, "etcd")
	s.says(s.must("metrics"), `cnibox_pool_addresses_used{network="demo",subnet="10.88.0.0/24"} 3`)
	s.must("doctor", "network-not-ready")
	s.host.MustRun(t, "rm", netlab.PluginDir+"/etcd") // cnictl asks etcd itself
	s.says(s.must("show", "networks"), "is shared by 1 host")
	s.says(s.must("leases", "keep"), "kept")
	code, printed := s.cnictl("doctor", "plugin-missing")
	if code != 1 {
		t.Errorf("doctor: exit code %d without the plugin", code)
	}
	s.says(printed, "etcd")
	s.host.InstallPlugins(t, "etcd")

	s.stopEtcd()
	s.says(s.must("show", "networks"), "etcd can't be asked", "no member of the etcd cluster answers")
	s.must("del", "demo", "--id", "db")
	db.Delete(t)
	s.says(s.must("show"), "db")
	code, printed = s.cnictl("leases", "keep")
	if code != 1 {
		t.Errorf("exit code %d without etcd", code)
	}
	s.says(printed, "not kept", "no member of the etcd cluster answers")
	code, printed = s.cnictl("doctor", "etcd-unreachable", "etcd-not-told")
	if code != 1 {
		t.Errorf("doctor: exit code %d without etcd", code)
	}
	s.says(printed, "etcd-unreachable", "etcd-not-told", "cnictl leases keep demo")

	s.startEtcd()
	s.says(s.inEtcd(), "/db/")
	s.says(s.must("leases", "keep", "demo"), "kept")
	if keys := s.inEtcd(); strings.Contains(keys, "/db/") || !strings.Contains(keys, "/web/") {
		t.Errorf("in etcd is\n%s", keys)
	}
	s.must("del", "demo", "--id", "web")
	if keys := strings.TrimSpace(s.inEtcd()); keys != "" {
		t.Errorf("in etcd is\n%s", keys)
	}
}

// TestLostAddress: after the grace another host has got an address, which this one finds out when it is back. Doctor says whose it is.
func TestLostAddress(t *testing.T) {
	t.Parallel()
	s := newShared(t, inEtcd)
	pod, address := s.attach("web")
	s.host.MustRun(t, "sh", "-ec", `export ETCDCTL_ENDPOINTS=`+endpoint+`
		etcdctl lease revoke $(etcdctl lease list | tail -1)
		etcdctl put /cnibox/demo/ipv4/`+fmt.Sprintf("%x", netip.MustParseAddr(address).AsSlice())+` '{"address":"`+address+`","host":"two","containerID":"else","ifname":"eth0"}'
		sed -i 's/"renewed":"[^"]*"/"renewed":"2020-01-01T00:00:00Z"/' /var/lib/cni/etcd/demo/host`)
	s.must("leases", "keep")
	code, printed := s.cnictl("doctor", "etcd-address-lost")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	s.says(printed, "demo/web/eth0", address+" is held by container else, interface eth0, on host two")
	s.says(s.must("show", address), "which is another host's by now")
	code, printed = s.cnictl("check", "demo", "--id", "web", pod.Path())
	if code == 0 {
		t.Errorf("CHECK is content:\n%s", printed)
	}
}

// TestGCOfSharedPool frees what attachments have that are gone, and what etcd has of this host that it does not know of; nothing of others.
func TestGCOfSharedPool(t *testing.T) {
	t.Parallel()
	s := newShared(t, inEtcd)
	s.attach("web")
	gone, _ := s.attach("gone")
	gone.Delete(t)
	s.host.MustRun(t, "etcdctl", "--endpoints", endpoint, "put", "/cnibox/demo/attachments/two/else/eth0/0a5800c8", "2020-01-01T00:00:00Z")
	s.host.MustRun(t, "sh", "-ec", `cd /var/lib/cni/etcd/demo/held; sed -i 's/"since":"[^"]*"/"since":"2020-01-01T00:00:00Z"/' *; `+ageResults)
	s.must("gc", "demo", "--apply")
	if keys := s.inEtcd(); strings.Contains(keys, "/gone/") || !strings.Contains(keys, "/web/") || !strings.Contains(keys, "/two/else/") {
		t.Errorf("in etcd is\n%s", keys)
	}
}

// TestMoveLeases moves the leases of running pods into etcd and back. Their addresses stay, and CHECK and DEL work by what is configured then.
func TestMoveLeases(t *testing.T) {
	t.Parallel()
	s := newShared(t, inFiles)
	s.host.Feed(t, inEtcd, "sh", "-c", "cat >/run/etcd.conflist")
	s.host.Feed(t, inFiles, "sh", "-c", "cat >/run/files.conflist")
	pods, addresses := map[string]*netlab.Pod{}, map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		pods[name], addresses[name] = s.attach(name)
	}
	isWell := func(names ...string) {
		t.Helper()
		for _, name := range names {
			s.must("check", "demo", "--id", name, pods[name].Path())
			if err := s.host.Ping(addresses[name], netlab.Patience); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.says(s.must("repair", "demo"), fmt.Sprintf("%d attachments: %d right", len(names), len(names)))
	}
	printed := s.must("leases", "move", "demo", "--to", "etcd", "--file", "/run/etcd.conflist")
	s.says(printed, "would move", addresses["one"], "6 to move to etcd")
	if keys := strings.TrimSpace(s.inEtcd()); keys != "" {
		t.Errorf("a dry run has moved\n%s", keys)
	}
	s.says(s.must("leases", "move", "demo", "--to", "etcd", "--file", "/run/etcd.conflist", "--apply"), "6 moved to etcd, 0 left")
	if left := s.leases(); left != "" {
		t.Errorf("host-local has\n%s", left)
	}
	isWell("one", "two", "three")
	if left := s.leases(); left != "" {
		t.Errorf("a repair has given host-local\n%s", left)
	}
	s.must("del", "demo", "--id", "two", pods["two"].Path())
	if keys := s.inEtcd(); strings.Contains(keys, "/two/") {
		t.Errorf("after DEL etcd has\n%s", keys)
	}
	pods["four"], addresses["four"] = s.attach("four")

	s.says(s.must("leases", "move", "demo", "--to", "host-local", "--file", "/run/files.conflist", "--apply"), "6 moved to host-local, 0 left")
	if keys := strings.TrimSpace(s.inEtcd()); keys != "" {
		t.Errorf("in etcd is\n%s", keys)
	}
	isWell("one", "three", "four")
	for _, name := range []string{"one", "three", "four"} {
		s.says(s.leases(), "/"+addresses[name]+"\n")
		s.must("del", "demo", "--id", name, pods[name].Path())
	}
	if left := s.leases(); left != "" {
		t.Errorf("host-local has\n%s", left)
	}
}

// TestMoveAfterExchange: the file was exchanged by somebody else, or the command was stopped behind that. The leases are found all the same.
func TestMoveAfterExchange(t *testing.T) {
	t.Parallel()
	s := newShared(t, strings.Replace(inFiles, `"type": "host-local",`, `"type": "host-local", "dataDir": "/run/leases",`, 1))
	s.attach("web")
	for _, to := range []struct{ name, network string }{{"etcd", inEtcd}, {"host-local", inFiles}} {
		s.host.Feed(t, to.network, "sh", "-c", "cat >/etc/cni/net.d/10-demo.conflist")
		s.says(s.must("leases", "move", "demo", "--to", to.name, "--file", "/etc/cni/net.d/10-demo.conflist", "--apply"), "2 moved to "+to.name+", 0 left")
		s.must("check", "demo", "--id", "web", "/run/netns/web")
	}
}

// TestMoveLeavesWhatOthersHave: an address that another host has in etcd stays where it is, and why is said.
func TestMoveLeavesWhatOthersHave(t *testing.T) {
	t.Parallel()
	s := newShared(t, inFiles)
	s.host.Feed(t, inEtcd, "sh", "-c", "cat >/run/etcd.conflist")
	s.attach("one")
	_, taken := s.attach("two")
	s.host.MustRun(t, "etcdctl", "--endpoints", endpoint, "put", "/cnibox/demo/ipv4/0a580003", `{"address":"10.88.0.3","host":"other","containerID":"else","ifname":"eth0"}`)
	if taken != "10.88.0.3" {
		t.Fatalf("two has %s", taken)
	}
	code, printed := s.cnictl("leases", "move", "demo", "--to", "etcd", "--file", "/run/etcd.conflist", "--apply")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	s.says(printed, "2 moved to etcd, 2 left", taken, "is held by container else, interface eth0, on host other")
	s.says(s.leases(), "/"+taken+"\n")
}

// TestAgentKeeps: the agent renews this host's lease when it starts, and delivers a DEL that did not reach etcd.
func TestAgentKeeps(t *testing.T) {
	t.Parallel()
	s := newShared(t, inEtcd)
	db, _ := s.attach("db")
	s.attach("web")
	s.stopEtcd()
	s.must("del", "demo", "--id", "db", db.Path())
	s.startEtcd()
	s.says(s.inEtcd(), "/db/")
	agent := s.host.Command(netlab.Cnictl(t), "agent")
	agent.Env, agent.Stderr = os.Environ(), os.Stderr
	s.host.Background(t, agent)
	netlab.Until(t, "the agent to release db", func() bool { return !strings.Contains(s.inEtcd(), "/db/") })
	s.says(s.inEtcd(), "/web/")
	_ = agent.Process.Signal(syscall.SIGTERM)
	s.must("del", "demo", "--id", "web")
}

// TestUnitKeeps: what the timer starts renews the lease with the rights that the unit has.
func TestUnitKeeps(t *testing.T) {
	t.Parallel()
	s := newShared(t, inEtcd)
	s.attach("web")
	const old = `sed -i 's/"renewed":"[^"]*"/"renewed":"2020-01-01T00:00:00Z"/' /var/lib/cni/etcd/demo/host`
	s.host.MustRun(t, "sh", "-ec", old)
	s.asUnit("cnibox-etcd.service")
	if host := s.host.MustRun(t, "cat", "/var/lib/cni/etcd/demo/host"); strings.Contains(host, "2020") {
		t.Errorf("the lease was not renewed: %s", host)
	}
}
