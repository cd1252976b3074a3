package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// shim is the network that the runtime knows; pods is the one that the agent attaches containers to.
const (
	shim = `{"cniVersion": "1.0.0", "name": "contiv-net", "plugins": [{"type": "contivk8s"}]}`
	pods = `{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [
    {"type": "bridge", "bridge": "pods0", "isDefaultGateway": true, "ipMasq": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}], [{"subnet": "fd00:99::/64"}]]}},
    {"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}
  ]
}`
	// unpublished is pods without the published port, which only one pod can have.
	unpublished = `{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{"type": "bridge", "bridge": "pods0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.99.0.0/24"}}]
}`
)

// contivHost is a node on which the agent can attach containers to a network.
func contivHost(t testing.TB, network string) (*netlab.Host, *netlab.Outside) {
	t.Helper()
	host := netlab.NewHost(t)
	host.OwnProcesses(t)
	host.InstallPlugins(t, append([]string{"contivk8s"}, harmtest.Plugins...)...)
	host.MustRun(t, "mkdir", "-p", "/etc/cni/net.d")
	host.Feed(t, network, "tee", "/etc/cni/net.d/90-pods.conflist")
	host.Feed(t, shim, "tee", "/etc/cni/net.d/10-contiv-net.conflist")
	return host, host.NewOutside(t)
}

// serveContiv starts an agent that serves contiv's API.
func serveContiv(t testing.TB, host *netlab.Host, args ...string) *running {
	t.Helper()
	return start(t, host, append([]string{"--contiv", contiv.DefaultSocket, "--network", "pods"}, args...)...)
}

// ofPod is what kubelet's runtime has contivk8s called with.
func ofPod(p *netlab.Pod, name string) *libcni.RuntimeConf {
	rt := p.RuntimeConf(nil)
	rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}, {"K8S_POD_INFRA_CONTAINER_ID", p.ID}}
	return rt
}

// newPod makes a pod, and attaches it by the agent. It returns its address.
func newPod(t testing.TB, host *netlab.Host, namespace, name string) (*netlab.Pod, string) {
	t.Helper()
	p := host.NewPod(t, namespace)
	p.SetLoopbackUp(t)
	result, err := host.AddList(shim, ofPod(p, name))
	if err != nil {
		t.Fatal(err)
	}
	v4, _ := netlab.Addresses(result)
	return p, v4.String()
}

// wire stands between contivk8s and the agent, and writes down what they send each other.
type wire struct {
	mu   sync.Mutex
	text []string
}

// tap listens in the place of the agent, whose socket has another path.
func tap(t testing.TB, host *netlab.Host, path, agent string) *wire {
	t.Helper()
	var l *net.UnixListener
	var err error
	host.Do(func() { l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	w := &wire{}
	go func() {
		for {
			client, err := l.AcceptUnix()
			if err != nil {
				return // the test has ended
			}
			if err := w.relay(client, dial(t, host, agent).(*net.UnixConn)); err != nil {
				t.Error(err)
			}
		}
	}()
	return w
}

// relay passes a request on, and the answer back.
func (w *wire) relay(client, agent *net.UnixConn) error {
	defer client.Close()
	defer agent.Close()
	data, oob := make([]byte, 1<<16), make([]byte, 1024)
	n, oobn, _, _, err := client.ReadMsgUnix(data, oob)
	if err != nil {
		return err
	}
	var passed []string
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			defer unix.Close(fd)
			if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
				return fmt.Errorf("descriptor %d is no network namespace", fd)
			}
			passed = append(passed, "a network namespace")
		}
	}
	if _, _, err := agent.WriteMsgUnix(data[:n], oob[:oobn], nil); err != nil {
		return err
	}
	answer, err := io.ReadAll(agent)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.text = append(w.text, fmt.Sprintf("-> %s\n   descriptors: %s\n<- %s", data[:n], passed, answer))
	w.mu.Unlock()
	_, err = client.Write(answer)
	return err
}

func (w *wire) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

// TestContiv has a pod wired by contivk8s, the agent, and bridge, host-local and portmap: what is sent is contiv's, the result is whole,
// packets go, and a DEL leaves nothing.
func TestContiv(t *testing.T) {
	t.Parallel()
	host, outside := contivHost(t, pods)
	host.MustRun(t, "mkdir", "-m", "0700", "/run/contiv")
	start(t, host, "--contiv", "/run/contiv/agent.sock", "--network", "pods")
	w := tap(t, host, contiv.DefaultSocket, "/run/contiv/agent.sock")
	first, _ := newPod(t, host, "first", "first-0") // makes what the network leaves for the next one
	if err := host.DelList(shim, ofPod(first, "first-0")); err != nil {
		t.Fatal(err)
	}
	first.Delete(t)
	before := host.Snapshot(t)

	p := host.NewPod(t, "web")
	p.SetLoopbackUp(t)
	rt := ofPod(p, "web-0")
	result, err := host.AddList(shim, rt)
	if err != nil {
		t.Fatal(err)
	}
	printed, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the runtime gets\n%s", printed)
	v4, v6 := netlab.Addresses(result)
	request := w.said()[len(w.said())-1]
	t.Logf("on the wire\n%s", strings.ReplaceAll(request, "\r", ""))
	body := `{"K8S_POD_NAME":"web-0","K8S_POD_NAMESPACE":"default","K8S_POD_INFRA_CONTAINER_ID":"` + p.ID + `","CNI_NETNS":"`
	for _, part := range []string{
		"-> POST /ContivCNI.AddPod HTTP/1.", "\r\nContent-Type: application/json\r\n", "\r\nCni-Netns: /run/netns/web\r\n", "\r\n\r\n" + body, `","CNI_IFNAME":"eth0"}` + "\n",
		"descriptors: [a network namespace]",
		"<- HTTP/1.0 200 OK\r\n", fmt.Sprintf(`{"endpointid":"%s","ipaddress":"%v/24","ipv6address":"%v/64"}`, p.ID, v4, v6),
	} {
		if !strings.Contains(request, part) {
			t.Errorf("on the wire there is no %q", part)
		}
	}
	if len(result.Interfaces) == 0 || len(result.Routes) == 0 || result.IPs[0].Gateway == nil {
		t.Error("the result lacks interfaces, routes or a gateway")
	}

	outsideAddress := outside.ServeTCP(t, ":7000")
	p.ServeTCP(t, ":80")
	if err := p.Ping(netlab.OutsideIPv4, netlab.Patience); err != nil {
		t.Error(err)
	}
	if err := p.Ping(netlab.OutsideIPv6, netlab.Patience); err != nil {
		t.Error(err)
	}
	masqueraded, err := p.DialTCP(fmt.Sprintf("%s:%d", netlab.OutsideIPv4, outsideAddress.Port()), netlab.Patience)
	if err != nil || !strings.Contains(masqueraded, netlab.HostIPv4) {
		t.Errorf("the pod asks the outside: %q, %v", masqueraded, err)
	}
	published, err := outside.DialTCP(netlab.HostIPv4+":8080", netlab.Patience)
	if err != nil || !strings.HasPrefix(published, "web saw ") {
		t.Errorf("the outside asks the published port: %q, %v", published, err)
	}
	t.Logf("from the pod: %q; by the published port: %q", masqueraded, published)
	if err := host.CheckList(shim, rt); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if code, printed := cnictl(t, host, "check", "pods", "--id", p.ID); code != 0 {
		t.Errorf("cnictl check of the agent's network: %s", printed)
	}
	if code, printed := cnictl(t, host, "repair"); code != 0 || !strings.Contains(printed, "2 right") {
		t.Errorf("cnictl repair: exit code %d\n%s", code, printed)
	}

	for range 2 {
		if err := host.DelList(shim, rt); err != nil {
			t.Error(err)
		}
	}
	t.Logf("on the wire, for DEL\n%s", strings.ReplaceAll(w.said()[len(w.said())-1], "\r", ""))
	p.Delete(t)
	if diff := before.Diff(host.Snapshot(t), append(ofAgent, "file /var/lib/cni/networks/pods/last")...); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
}

// TestContivIsAway: without the agent an ADD is to be repeated, and a DEL succeeds and is carried out when the agent is back.
func TestContivIsAway(t *testing.T) {
	t.Parallel()
	host, _ := contivHost(t, unpublished)
	a := serveContiv(t, host)
	p, address := newPod(t, host, "web", "web-0")
	stays, _ := newPod(t, host, "stays", "stays-0")
	a.stop()
	late := host.NewPod(t, "late")
	if _, err := host.AddList(shim, ofPod(late, "late-0")); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("ADD without the agent: %v", err)
	}
	if err := host.DelList(shim, ofPod(late, "late-0")); err != nil {
		t.Errorf("DEL of what was not made: %v", err)
	}
	if err := stays.Ping("10.99.0.1", netlab.Patience); err != nil {
		t.Errorf("a pod without the agent: %v", err)
	}
	p.Delete(t)
	if err := host.DelList(shim, ofPod(p, "web-0")); err != nil {
		t.Errorf("DEL without the agent: %v", err)
	}
	queued := host.MustRun(t, "sh", "-c", "cat /var/lib/cni/contivk8s/deletions/*")
	t.Logf("queued\n%s", queued)
	if !strings.Contains(queued, p.ID) {
		t.Error("the DEL is not queued")
	}
	lease := "/var/lib/cni/networks/pods/" + address
	host.MustRun(t, "test", "-f", lease)

	a = serveContiv(t, host)
	if a.log.count("detached, as was queued") == 0 {
		t.Errorf("nothing is said of the queue:\n%s", a.log)
	}
	host.MustRun(t, "sh", "-c", "! test -e "+lease+" && ! test -e /var/lib/cni/contivk8s/deletions && ! ls /var/lib/cni/results | grep "+p.ID)
	if err := stays.Ping("10.99.0.1", netlab.Patience); err != nil {
		t.Errorf("the other pod: %v", err)
	}
	if _, err := host.AddList(shim, ofPod(late, "late-0")); err != nil {
		t.Errorf("ADD when the agent is back: %v", err)
	}
}

// TestContivStaleDEL: the DEL of an older sandbox of a pod leaves the newer one alone, which may have its namespace's path by now.
func TestContivStaleDEL(t *testing.T) {
	t.Parallel()
	host, _ := contivHost(t, unpublished)
	serveContiv(t, host)
	old, oldAddress := newPod(t, host, "web", "web-0")
	rt := ofPod(old, "web-0")
	old.Replace(t)
	old.SetLoopbackUp(t)
	newer := ofPod(old, "web-0")
	newer.ContainerID = strings.Repeat("b", 64)
	newer.Args[3][1] = newer.ContainerID
	result, err := host.AddList(shim, newer)
	if err != nil {
		t.Fatal(err)
	}
	v4, _ := netlab.Addresses(result)
	for range 2 { // the second is of what is not known any more
		if err := host.DelList(shim, rt); err != nil {
			t.Error(err)
		}
	}
	if err := old.Ping("10.99.0.1", netlab.Patience); err != nil {
		t.Errorf("the newer sandbox: %v", err)
	}
	if err := host.CheckList(shim, newer); err != nil {
		t.Errorf("CHECK of the newer sandbox: %v", err)
	}
	host.MustRun(t, "sh", "-c", fmt.Sprintf("test -f /var/lib/cni/networks/pods/%v && ! test -f /var/lib/cni/networks/pods/%v", v4, oldAddress))
}

// TestContivSeesNoNamespaces: the agent needs no /run/netns: contivk8s passes it the namespace.
func TestContivSeesNoNamespaces(t *testing.T) {
	t.Parallel()
	host, _ := contivHost(t, unpublished)
	cmd := host.Command("unshare", "--mount", "--propagation", "private", netlab.Cnictl(t), "agent", "--contiv", contiv.DefaultSocket, "--network", "pods")
	a := run(t, host, cmd)
	a.awaitReady()
	p, address := newPod(t, host, "web", "web-0")
	seen := host.MustRun(t, "nsenter", "--mount=/proc/"+fmt.Sprint(a.pid())+"/ns/mnt", "stat", "-f", "-c", "%T", p.Path())
	if strings.TrimSpace(seen) == "nsfs" {
		t.Fatal("the agent sees the namespace, so this test is none")
	}
	if err := p.Ping("10.99.0.1", netlab.Patience); err != nil {
		t.Error(err)
	}
	kept := host.MustRun(t, "cat", "/var/lib/cni/results/pods-"+p.ID+"-eth0")
	if !strings.Contains(kept, `"netns":"`+p.Path()+`"`) || !strings.Contains(kept, `"sandbox":"`+p.Path()+`"`) || strings.Contains(kept, "/proc/") {
		t.Errorf("libcni keeps %s", kept)
	}
	if code, printed := cnictl(t, host, "check", "pods", "--id", p.ID); code != 0 {
		t.Errorf("cnictl check, which sees the namespace: %s", printed)
	}
	if err := host.DelList(shim, ofPod(p, "web-0")); err != nil {
		t.Error(err)
	}
	host.MustRun(t, "sh", "-c", "! test -e /var/lib/cni/networks/pods/"+address)
	if links := p.MustRun(t, "ip", "-br", "link"); strings.Contains(links, "eth0") {
		t.Errorf("after DEL the pod has\n%s", links)
	}
}

// TestContivManyAtOnce attaches many pods at once, kills some calls in the middle, and removes all: nothing is left.
func TestContivManyAtOnce(t *testing.T) {
	t.Parallel()
	host, _ := contivHost(t, unpublished)
	a := serveContiv(t, host, "--grace", "1h") // what a DEL leaves stays
	first, _ := newPod(t, host, "first", "first-0")
	if err := host.DelList(shim, ofPod(first, "first-0")); err != nil {
		t.Fatal(err)
	}
	first.Delete(t)
	before := host.Snapshot(t)
	var all sync.WaitGroup
	var made []*netlab.Pod
	for i := range chosen(40, 200) {
		p := host.NewPod(t, fmt.Sprint("pod", i))
		made = append(made, p)
		all.Go(func() {
			rt := ofPod(p, fmt.Sprint("pod-", i))
			var err error
			for range 50 { // a busy agent has the runtime come again
				if _, err = host.AddList(shim, rt); err == nil || !strings.Contains(err.Error(), "most at once") {
					break
				}
				_ = host.DelList(shim, rt)
			}
			if err == nil {
				err = p.Ping("10.99.0.1", netlab.Patience)
			}
			if err == nil {
				err = host.DelList(shim, rt)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, p := range made {
		p.Delete(t)
	}
	netlab.Eventually(t, func() error {
		if err := host.DelList(shim, ofPod(first, "first-0")); err != nil { // which delivers those DELs that the agent had no time for
			return err
		}
		if diff := before.Diff(host.Snapshot(t), append(ofAgent, "file /var/lib/cni/networks/pods/last")...); diff != "" {
			return errors.New("left:\n" + diff)
		}
		return nil
	})
	if n := a.log.count("level=ERROR"); n > 0 {
		t.Errorf("%d errors in the agent's log", n)
	}
}

// TestContivWithoutHostEnd: the two attachments that a pod then has, the runtime's and the agent's, do not replace each other.
func TestContivWithoutHostEnd(t *testing.T) {
	t.Parallel()
	host, _ := contivHost(t, `{"cniVersion": "1.0.0", "name": "pods", "repair": "all", "plugins": [{"type": "macvlan", "master": "uplink0", "ipam": {"type": "host-local", "subnet": "10.99.0.0/24"}}]}`)
	a := serveContiv(t, host, "--grace", "0s", "--every", "1s")
	p, _ := newPod(t, host, "web", "web-0")
	shown := host.MustRun(t, netlab.Cnictl(t), "show", "--json")
	if strings.Contains(shown, "by now") {
		t.Errorf("cnictl show\n%s", shown)
	}
	p.MustRun(t, "ip", "link", "set", "eth0", "down")
	if code, printed := cnictl(t, host, "repair"); code != 0 { // or the agent was faster
		t.Errorf("cnictl repair: exit code %d\n%s", code, printed)
	}
	if links := p.MustRun(t, "ip", "-br", "link", "show", "eth0"); !strings.Contains(links, "UP") {
		t.Errorf("after cnictl repair the pod has %s", links)
	}
	p.Delete(t) // without a DEL: the agent collects both
	host.MustRun(t, "sh", "-c", `sed -i 's/"since":"[^"]*"/"since":"'$(date -u -d "5 minutes ago" +%FT%TZ)'"/' /var/lib/cni/contivk8s/*.json`)
	age(t, host)
	netlab.Until(t, "both to be collected", func() bool {
		return strings.TrimSpace(host.MustRun(t, "sh", "-c", "ls /var/lib/cni/results; ls /var/lib/cni/networks/pods | grep ^10 || true")) == ""
	})
	if n := a.log.count("level=ERROR"); n > 0 {
		t.Errorf("%d errors in the agent's log", n)
	}
}
