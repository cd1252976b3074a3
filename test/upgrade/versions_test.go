package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestVersions exchanges cnibox for one whose rules in nf_tables are of another version, and back, beside containers that send all the while. What was
// open stays open, and what was closed stays closed.
func TestVersions(t *testing.T) {
	next := nextVersion(t)
	for name, test := range map[string]func(*versions){
		"ADD-first": addFirst, "DEL-first": delFirst, "GC-first": gcFirst, "repair-first": repairFirst, "back": goBack, "names": keepNames,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newVersions(t, next))
		})
	}
}

// later is what the next version changes: the number, names of chains, and a rule more in each list and in each of the other tables.
var later = map[string][][2]string{
	"table.go":   {{`const version = "_v1"`, `const version = "_v2"`}},
	"egress.go":  {{`"judge" + version`, `"decide" + version`}, {"\tl.rules = append(l.rules, drop())\n}", "\tl.rules = append(l.rules, drop(), drop())\n}"}},
	"forward.go": {{`"passes" + version`, `"opens" + version`}, {"\t\t\tgotoChain(passes),\n", "\t\t\tgotoChain(passes),\n\t\t\tgotoChain(passes),\n"}, {"jumps: 4}", "jumps: 5}"}},
	"spoof.go":   {{"\t\t\tsequence(inSet(l.checked, inLink()), drop()),\n", "\t\t\tsequence(inSet(l.checked, inLink()), drop()),\n\t\t\tsequence(inSet(l.checked, inLink()), drop()),\n"}},
	"host.go":    {{"\t\t\tjump(chainSubnets),\n", "\t\t\tjump(chainSubnets),\n\t\t\tleave(),\n"}},
}

// nextVersion builds cnibox and cnictl of that version, and returns their directory.
func nextVersion(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, replaced := t.TempDir(), map[string]string{}
	for name, changes := range later {
		path := filepath.Join(root, "pkg/netfilter/nft", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(text)
		for _, c := range changes {
			if strings.Count(changed, c[0]) != 1 {
				t.Fatalf("%s has %q %d times", path, c[0], strings.Count(changed, c[0]))
			}
			changed = strings.Replace(changed, c[0], c[1], 1)
		}
		replaced[path] = filepath.Join(dir, name)
		if err := os.WriteFile(replaced[path], []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("make", "-s", "build", "BIN="+dir, "GOFLAGS=-trimpath -overlay="+filepath.Join(dir, "overlay.json")) // what is not replaced is built already
	cmd.Dir = root
	netlab.Build(t, cmd)
	return dir
}

// versions is a node on which one version comes after the other.
type versions struct {
	testing.TB
	*node
	next string // where the programs of the next version are
	now  string // where those are that the node has

	all  []*tenant
	last atomic.Value // what was done last, for errors
}

// newVersions returns a node with the old version, that drops what it is not told to forward.
func newVersions(t testing.TB, next string) *versions {
	v := &versions{TB: t, node: newNode(t, origin{name: "versions", flavour: "nft"}), next: next}
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		v.MustRun(t, program, "-P", "FORWARD", "DROP")
	}
	for _, port := range []string{":80", ":85", ":90", ":95", ":443"} {
		v.outside.ServeUDP(t, port)
		v.echo(port)
	}
	v.watch(&v.outside.Namespace)
	v.watch(&v.Host.Namespace)
	v.use(filepath.Dir(netlab.Cnibox(t)))
	return v
}

// use has the node run the version whose programs are in a directory.
func (v *versions) use(dir string) {
	v.Helper()
	links := v.TempDir()
	names := []string{"bridge", "host-local", "portmap", "firewall", "egress"}
	for _, name := range names {
		if err := os.Symlink(filepath.Join(dir, "cnibox"), filepath.Join(links, name)); err != nil {
			v.Fatal(err)
		}
	}
	v.InstallFrom(v, links, names...)
	v.now = dir
}

func (v *versions) useOld() { v.Helper(); v.use(filepath.Dir(netlab.Cnibox(v))) }

func (v *versions) useNext() { v.Helper(); v.use(v.next) }

// closedPorts are those that no list opens. Whatever comes to one is counted.
const closedPorts = "81-84, 91-94"

// watch counts what comes to ports that are closed.
func (v *versions) watch(n *netlab.Namespace) {
	v.Helper()
	v.count(n, "closed", "{ "+closedPorts+" }")
}

// count counts what comes to ports, in a table of this name.
func (v *versions) count(n *netlab.Namespace, name, ports string) {
	v.Helper()
	n.Feed(v, fmt.Sprintf("table inet %s {\ncounter hits { }\nchain in {\ntype filter hook input priority 500\nudp dport %s counter name hits\n}\n}\n", name, ports), "nft", "-f", "-")
}

// nothingIn makes sure that nothing was counted.
func (v *versions) nothingIn(n *netlab.Namespace, name string) {
	v.Helper()
	if listing := n.MustRun(v, "nft", "list", "counter", "inet", name, "hits"); !strings.Contains(listing, "packets 0 ") {
		v.Errorf("after %v: packets have got to %s where no list leads: %s", v.last.Load(), n.Name(), listing)
	}
}

// echo has the outside answer over TCP what it hears, as long as the test lasts.
func (v *versions) echo(port string) {
	v.Helper()
	var listener net.Listener
	var err error
	v.outside.Do(func() { listener, err = net.Listen("tcp", port) })
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// tenant is a container, and what it may reach.
type tenant struct {
	v            *versions
	name, list   string // the lists, "" for none
	pod          *netlab.Pod
	rt           *libcni.RuntimeConf
	v4, v6       netip.Addr
	port         int      // of the host
	open, closed []string // addresses with ports

	rounds  []*atomic.Int64 // of what is done again and again
	ended   atomic.Bool
	sending sync.WaitGroup
}

// network returns the conflist of a tenant. Those without a list have a network of their own, where ports are published on conditions.
func (x *tenant) network(list string) string {
	name, bridge, subnet4, subnet6, conditions, egress := "listed", "listed0", "10.88.0.0/24", "fd00:88::/64", "", `, {"type": "egress", `+list+`}`
	if x.list == "" {
		name, bridge, subnet4, subnet6, conditions, egress = "free", "free0", "10.99.0.0/24", "fd00:99::/64", `"conditionsV4": ["ip", "saddr", "!=", "203.0.113.1"],`, ""
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.1.0", "name": %q,
  "plugins": [
    {"type": "bridge", "bridge": %q, "isDefaultGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}], [{"subnet": %q}]]}},
    {"type": "portmap", %s "capabilities": {"portMappings": true}},
    {"type": "firewall", "ingressPolicy": "same-bridge"}%s
  ]
}`, name, bridge, subnet4, subnet6, conditions, egress)
}

const (
	out4, out6 = netlab.OutsideIPv4, "[" + netlab.OutsideIPv6 + "]"
	host4      = netlab.HostIPv4
)

// The lists: prefixes and ports, destinations that are closed, another one, and names.
func (v *versions) tenantA() *tenant {
	return v.tenant("a", `"allow": ["192.0.2.240/28:80", "192.0.2.240/28:85", "[2001:db8:2::/64]:80", "[2001:db8:2::/64]:85/udp"]`, 0,
		[]string{out4 + ":80", out6 + ":80"}, []string{out4 + ":81", out6 + ":81", host4 + ":81", out4 + ":91"})
}

func (v *versions) tenantB() *tenant {
	return v.tenant("b", `"deny": ["192.0.2.254:82/udp", "[2001:db8:2::/64]:82", "192.0.2.1"]`, 8083,
		[]string{out4 + ":80", out6 + ":80"}, []string{out4 + ":82", out6 + ":82", host4 + ":82"})
}

// tenantC has no list. Its port of the host leads to port 80.
func (v *versions) tenantC() *tenant {
	return v.tenant("c", "", 8080, []string{out4 + ":80", out6 + ":90"}, nil)
}

func (v *versions) tenantD() *tenant {
	return v.tenant("d", `"allow": ["api.example.com:443", "192.0.2.254:80"]`, 0, []string{out4 + ":80"}, []string{out4 + ":83", out6 + ":93"})
}

func (v *versions) tenantE() *tenant {
	return v.tenant("e", `"allow": ["192.0.2.254:90", "192.0.2.254:95", "[2001:db8:2::254]:90"]`, 8081, []string{out4 + ":90", out6 + ":90"}, []string{out4 + ":84", out6 + ":94", host4 + ":84"})
}

func (v *versions) tenant(name, list string, port int, open, closed []string) *tenant {
	x := &tenant{v: v, name: name, list: list, pod: v.NewPod(v, name), port: port, open: open, closed: closed}
	caps := map[string]any{}
	if port != 0 {
		caps["portMappings"] = []map[string]any{{"hostPort": port, "containerPort": 80, "protocol": "udp"}}
	}
	x.rt = x.pod.RuntimeConf(caps)
	return x
}

// add attaches tenants, and has them send from now on.
func (v *versions) add(list ...*tenant) {
	v.Helper()
	for _, x := range list {
		result, err := v.AddList(x.network(x.list), x.rt)
		if err != nil {
			v.Fatalf("ADD of %s: %v", x.name, err)
		}
		x.v4, x.v6 = netlab.Addresses(result)
		x.pod.SetLoopbackUp(v)
		if x.port != 0 {
			x.pod.ServeUDP(v, ":80")
		}
		v.all = append(v.all, x)
		x.begin()
	}
	v.did("ADD of %s", list[len(list)-1].name)
}

// begin has a tenant send. The sockets are new each time, but for one connection that goes on.
func (x *tenant) begin() {
	v := x.v
	held := v.hold(x.pod, x.open[0])
	v.Cleanup(x.end)
	x.keep(&x.pod.Namespace, func() error {
		for _, to := range x.open {
			if err := ask(to); err != nil {
				return err
			}
		}
		return echo(held)
	})
	if len(x.closed) > 0 {
		x.keep(&x.pod.Namespace, func() error { return send("", x.closed...) })
	}
	if x.port != 0 {
		x.keep(&v.outside.Namespace, func() error { return ask(fmt.Sprint(host4, ":", x.port)) })
	}
}

// keep has something done in a namespace again and again, until the tenant's end.
func (x *tenant) keep(n *netlab.Namespace, do func() error) {
	rounds := new(atomic.Int64)
	x.rounds = append(x.rounds, rounds)
	x.sending.Go(func() {
		n.Do(func() {
			for ; !x.ended.Load(); netlab.Pause(time.Millisecond) { // others send, too
				if err := do(); err != nil {
					x.v.Errorf("%s in %s, after %v: %v", x.name, n.Name(), x.v.last.Load(), err)
					return
				}
				rounds.Add(1)
			}
		})
	})
}

// send sends a packet to each of some addresses, from another one unless that is "", and waits for nothing.
func send(from string, list ...string) error {
	d := net.Dialer{}
	if from != "" {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
	}
	for _, to := range list {
		conn, err := d.Dial("udp", to)
		if err != nil {
			return err
		}
		_, _ = conn.Write([]byte("hello\n")) // an error is about the packet before
		_ = conn.Close()
	}
	return nil
}

// ask sends one packet, and waits for the answer. Nothing is sent again.
func ask(to string) error {
	conn, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	return echo(conn)
}

// hold returns a connection over TCP from a pod to the outside.
func (v *versions) hold(pod *netlab.Pod, to string) net.Conn {
	v.Helper()
	conn, err := pod.DialContext(context.Background(), "tcp", to)
	if err != nil {
		v.Fatal(err)
	}
	return conn
}

// echo sends something, and waits for what comes back.
func echo(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(netlab.Patience))
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 512))
	return err
}

// end has a tenant send no more.
func (x *tenant) end() {
	x.ended.Store(true)
	x.sending.Wait()
	x.v.all = slices.DeleteFunc(x.v.all, func(y *tenant) bool { return x == y })
}

// did says what was done, and looks that all is as it was, when all have sent all of what they send some times more.
func (v *versions) did(format string, args ...any) {
	v.Helper()
	what := fmt.Sprintf(format, args...)
	v.last.Store(what)
	for _, x := range v.all {
		for _, rounds := range x.rounds {
			begun := rounds.Load()
			netlab.Until(v, x.name+"'s packets after "+what, func() bool { return v.Failed() || rounds.Load() >= begun+2 })
		}
	}
	v.nothingIn(&v.outside.Namespace, "closed")
	v.nothingIn(&v.Host.Namespace, "closed")
}

// checkOf returns what a tenant's CHECK says.
func (v *versions) checkOf(x *tenant) error { return v.CheckList(x.network(x.list), x.rt) }

// fine makes sure that the CHECK of tenants succeeds.
func (v *versions) fine(list ...*tenant) {
	v.Helper()
	for _, x := range list {
		if err := v.checkOf(x); err != nil {
			v.Errorf("CHECK of %s after %v: %v", x.name, v.last.Load(), err)
		}
	}
}

// other makes sure that their CHECK says that they have rules of another version, and how they get this one's.
func (v *versions) other(list ...*tenant) {
	v.Helper()
	for _, x := range list {
		var e *types.Error
		if err := v.checkOf(x); !errors.As(err, &e) || !strings.Contains(e.Msg, "rules of another version of cnibox") || !strings.Contains(e.Details, "`cnictl repair`") {
			v.Errorf("CHECK of %s after %v: %v", x.name, v.last.Load(), err)
		}
	}
}

// cnictl runs a command of the version that the node has. It returns what that prints, and whether it found nothing wrong.
func (v *versions) cnictl(args ...string) (printed string, ok bool) {
	v.Helper()
	out, err := v.node.Output(v.Command(filepath.Join(v.now, "cnictl"), args...))
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		v.Fatal(err)
	}
	return out, err == nil
}

// versionsOf returns the versions of the rules that are the same for all, in one of our tables.
func (v *versions) versionsOf(table string) (found []string) {
	v.Helper()
	for _, m := range regexp.MustCompile(`chain \w+(_v\d+) \{\n\t\ttype`).FindAllStringSubmatch(v.MustRun(v, "nft", "list", "table", "inet", table), -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// has makes sure that all tables have rules of these versions.
func (v *versions) has(want ...string) {
	v.Helper()
	for _, table := range []string{"cnibox", "cnibox-forward", "cnibox-egress"} {
		if got := v.versionsOf(table); !slices.Equal(got, want) {
			v.Errorf("after %v table %s has rules of %v, want %v", v.last.Load(), table, got, want)
		}
	}
}

// del calls DEL for tenants. What is no container any more sends nothing.
func (v *versions) del(list ...*tenant) {
	v.Helper()
	for _, x := range list {
		x.end()
		if err := v.DelList(x.network(x.list), x.rt); err != nil {
			v.Errorf("DEL of %s: %v", x.name, err)
		}
		x.pod.Delete(v)
		v.did("DEL of %s", x.name)
		v.gone(x)
	}
}

// gone makes sure that nothing in the packet filter is a tenant's.
func (v *versions) gone(x *tenant) {
	v.Helper()
	listing := v.MustRun(v, "nft", "list", "ruleset")
	for _, word := range []string{x.pod.ID[:12], x.v4.String() + " ", x.v6.String() + " "} {
		for _, line := range strings.Split(listing, "\n") {
			if strings.Contains(line+" ", word) && !strings.Contains(line, "expires") { // about to go
				v.Errorf("after %v there is something of %s: %s", v.last.Load(), x.name, line)
			}
		}
	}
}

// empty makes sure that nothing is left that an attachment had, or a list.
func (v *versions) empty() {
	v.Helper()
	if list := v.all; len(list) > 0 {
		v.Fatalf("%d containers run", len(list))
	}
	listing := ""
	netlab.Eventually(v, func() error {
		listing = v.MustRun(v, "nft", "list", "ruleset")
		if strings.Contains(listing, "expires") {
			return errors.New("something is about to go, and does not")
		}
		return nil
	})
	for _, word := range []string{"list_v1_", "comment \"listed/", "comment \"free/"} {
		if strings.Contains(listing, word) {
			v.Errorf("after %v there is %s:\n%s", v.last.Load(), word, listing)
		}
	}
}

// steal has one tenant send under another's address to where that other's list leads and its own does not. It is as if it had not been sent.
func (v *versions) steal(by, of *tenant, port int) {
	v.Helper()
	v.count(&v.outside.Namespace, "stolen", fmt.Sprint(port))
	by.pod.MustRun(v, "ip", "address", "add", of.v4.String()+"/32", "dev", "eth0")
	var err error
	by.pod.Do(func() {
		err = errors.Join(send(of.v4.String(), fmt.Sprint(out4, ":", port)), send("", fmt.Sprint(out4, ":", port)))
	})
	if err != nil {
		v.Error(err)
	}
	by.pod.MustRun(v, "ip", "address", "del", of.v4.String()+"/32", "dev", "eth0")
	v.did("%s has stolen the address of %s", by.name, of.name)
	v.nothingIn(&v.outside.Namespace, "stolen")
	v.outside.MustRun(v, "nft", "delete", "table", "inet", "stolen")
}

// attached is a node with containers of the old version, and the next one just came.
func (v *versions) attached() (a, b, c *tenant) {
	v.Helper()
	a, b, c = v.tenantA(), v.tenantB(), v.tenantC()
	v.add(a, b, c)
	v.fine(a, b, c)
	v.has("_v1")
	v.useNext()
	v.did("the exchange")
	v.has("_v1")
	v.other(a, b, c)
	return a, b, c
}

// addFirst is what comes on most nodes.
func addFirst(v *versions) {
	a, b, c := v.attached()
	for _, x := range []*tenant{a, c} {
		if err := v.StatusList(x.network(x.list)); err != nil {
			v.Errorf("STATUS: %v", err)
		}
	}
	v.did("STATUS")
	taken := v.tenant("taken", "", 8080, []string{out4 + ":80"}, nil)
	if _, err := v.AddList(taken.network(""), taken.rt); err == nil || !strings.Contains(err.Error(), "already published by") {
		v.Errorf("ADD with a port that a container of the old version has: %v", err)
	}
	if err := v.DelList(taken.network(""), taken.rt); err != nil {
		v.Errorf("DEL: %v", err)
	}
	v.did("a failed ADD")
	v.MustRun(v, "nft", "add chain inet cnibox-forward own; add rule inet cnibox-forward own jump passes_v1") // somebody's, which keeps the old chain there
	e := v.tenantE()
	v.add(e)
	v.has("_v2")
	v.fine(c, e)
	v.other(a, b)
	v.steal(e, a, 85)
	v.steal(a, e, 95)

	printed, _ := v.cnictl("doctor")
	if strings.Contains(printed, "lists-gone") || !strings.Contains(printed, "rules-older") || !strings.Contains(printed, "cnictl repair listed") {
		v.Errorf("cnictl doctor does not say what is so:\n%s", printed)
	}
	v.did("doctor")
	if printed, ok := v.cnictl("repair", "listed"); !ok {
		v.Errorf("cnictl repair: %s", printed)
	}
	v.did("repair")
	v.fine(a, b, c, e)
	if n := strings.Count(v.MustRun(v, "nft", "list", "table", "inet", "cnibox-egress"), "\tchain list_v1_"); n != 3 {
		v.Errorf("after repair there are %d lists, want 3", n)
	}
	v.steal(e, a, 85)
	printed, _ = v.cnictl("doctor")
	if strings.Contains(printed, "rules-older") {
		v.Errorf("cnictl doctor after repair:\n%s", printed)
	}
	v.del(b, c, a, e)
	v.empty()
	v.has("_v2")
}

// delFirst has the next version take away what the old one has made: the namespace is gone, the configuration is another one, libcni knows nothing.
func delFirst(v *versions) {
	a, b, c := v.attached()
	for _, x := range []*tenant{a, c, b} {
		x.end()
		x.pod.Delete(v)
		v.forgetOne(x)
		x.rt.CapabilityArgs = nil
		list := x.list
		if list != "" {
			list = `"allow": ["203.0.113.0/24"]`
		}
		for range 2 {
			if err := v.DelList(x.network(list), x.rt); err != nil {
				v.Errorf("DEL of %s: %v", x.name, err)
			}
		}
		v.did("DEL of %s", x.name)
		v.gone(x)
	}
	v.empty()
}

// forgetOne removes what libcni knows of a tenant.
func (v *versions) forgetOne(x *tenant) {
	v.Helper()
	v.MustRun(v, "sh", "-c", "rm "+netlab.CacheDir+"/results/*-"+x.rt.ContainerID+"-eth0")
}

// gcFirst has it collect one of two, and then all.
func gcFirst(v *versions) {
	a, b, c := v.attached()
	b.end()
	b.pod.Delete(v)
	v.forgetOne(b)
	gc := func(valid ...*tenant) {
		for _, x := range []*tenant{a, c} {
			list := []types.GCAttachment{}
			for _, y := range valid {
				list = append(list, types.GCAttachment{ContainerID: y.rt.ContainerID, IfName: "eth0"})
			}
			if err := v.GCList(x.network(x.list), &libcni.GCArgs{ValidAttachments: list}); err != nil {
				v.Errorf("GC: %v", err)
			}
		}
		v.did("GC")
	}
	gc(a, c)
	v.gone(b)
	e := v.tenantE()
	v.add(e)
	gc(a, c, e)
	v.fine(c, e)
	v.other(a)
	for _, x := range []*tenant{a, c, e} {
		x.end()
		x.pod.Delete(v)
		v.forgetOne(x)
	}
	gc()
	v.empty()
}

// repairFirst has repair come before any ADD.
func repairFirst(v *versions) {
	a, b, c := v.attached()
	printed, _ := v.cnictl("doctor")
	if strings.Contains(printed, "lists-gone") || strings.Contains(printed, "attachment-broken") || !strings.Contains(printed, "rules-older") {
		v.Errorf("cnictl doctor does not say what is so:\n%s", printed)
	}
	remedies := regexp.MustCompile(`(?m)^ +cnictl (repair \w+)$`).FindAllStringSubmatch(printed, -1)
	for _, m := range remedies { // as it is printed
		if printed, ok := v.cnictl(strings.Fields(m[1])...); !ok {
			v.Errorf("cnictl %s: %s", m[1], printed)
		}
		v.did("cnictl %s", m[1])
	}
	if len(remedies) != 2 {
		v.Errorf("cnictl doctor has %d remedies for 2 networks:\n%s", len(remedies), printed)
	}
	if printed, _ := v.cnictl("doctor"); strings.Contains(printed, "rules-older") {
		v.Errorf("cnictl doctor after repair:\n%s", printed)
	}
	v.has("_v2")
	v.fine(a, b, c)
	v.del(a, b, c)
	v.empty()
}

// goBack has the old version come back to what the next one has made, and that again.
func goBack(v *versions) {
	a, b, c := v.attached()
	e := v.tenantE()
	v.add(e)
	if printed, ok := v.cnictl("repair"); !ok {
		v.Errorf("cnictl repair: %s", printed)
	}
	v.did("repair")
	v.fine(a, b, c, e)

	v.useOld()
	v.did("the way back")
	v.other(a, b, c, e)
	v.del(e)
	other := v.tenant("f", `"allow": ["192.0.2.254:90"]`, 8082, []string{out4 + ":90"}, []string{out4 + ":94"})
	v.add(other)
	v.has("_v1", "_v2") // what the next one may close beyond stays closed
	v.fine(other, c)
	v.other(a, b)
	v.steal(other, a, 85)
	if printed, ok := v.cnictl("repair"); !ok {
		v.Errorf("cnictl repair: %s", printed)
	}
	v.did("repair by the old version")
	v.fine(a, b, c, other)
	v.del(a)

	v.useNext()
	v.did("the second exchange")
	v.other(b, other, c)
	again := v.tenantE()
	again.pod = v.NewPod(v, "again")
	again.rt.ContainerID, again.rt.NetNS = again.pod.ID, again.pod.Path()
	v.add(again)
	v.has("_v2")
	v.other(b, other)
	v.fine(c, again)
	v.del(c, other, b, again)
	v.empty()
}

// keepNames: what a name has opened stays open until the list is another one, and a connection goes on then, too.
func keepNames(v *versions) {
	d := v.tenantD()
	v.add(d)
	v.fine(d)
	set := regexp.MustCompile(`names0_4_v1_\w+`).FindString(v.MustRun(v, "nft", "list", "table", "inet", "cnibox-egress"))
	v.MustRun(v, "nft", "add", "element", "inet", "cnibox-egress", set, `{ 192.0.2.254 timeout 1h comment "api.example.com" }`)
	held := v.hold(d.pod, out4+":443")
	defer held.Close()
	goesOn := func() {
		if err := echo(held); err != nil {
			v.Errorf("after %v: %v", v.last.Load(), err)
		}
	}
	goesOn()
	v.useNext()
	v.did("the exchange")
	e := v.tenantE()
	v.add(e)
	goesOn()
	var err error
	if d.pod.Do(func() { err = ask(out4 + ":443") }); err != nil {
		v.Errorf("what a name has opened: %v", err)
	}
	if printed, ok := v.cnictl("repair"); !ok {
		v.Errorf("cnictl repair: %s", printed)
	}
	v.did("repair")
	v.fine(d, e)
	goesOn()
	v.del(d, e)
	v.empty()
}
