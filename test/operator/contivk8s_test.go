package operator

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
	"github.com/cnibox/cnibox/test/netlab"
)

// shim is a network that the agent attaches containers to, which has them on the network demo.
const shim = `{"cniVersion": "1.1.0", "name": "contiv-net", "plugins": [{"type": "contivk8s", "timeout": 20}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`

// serveContiv starts an agent that serves contiv's API, and returns what ends it.
func (o *operator) serveContiv() (stop func()) {
	o.Helper()
	cmd := o.host.Command(netlab.Cnictl(o), "agent", "--contiv", contiv.DefaultSocket, "--network", "demo")
	cmd.Env, cmd.Stderr = os.Environ(), &strings.Builder{}
	if err := o.host.Start(cmd); err != nil {
		o.Fatal(err)
	}
	o.eventually("cnictl agent status")
	stop = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				o.Errorf("the agent ends: %v\n%s", err, cmd.Stderr)
			}
		}
	}
	o.Cleanup(stop)
	return stop
}

// pod makes a pod, and what a runtime of Kubernetes calls plugins with for it.
func (o *operator) pod(name string) (*netlab.Pod, *libcni.RuntimeConf) {
	o.Helper()
	pod := o.host.NewPod(o, name)
	rt := pod.RuntimeConf(port(8080, 80, "tcp"))
	rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", name}, {"K8S_POD_INFRA_CONTAINER_ID", pod.ID}}
	return pod, rt
}

func (o *operator) files(pattern string) []string {
	o.Helper()
	return strings.Fields(o.host.MustRun(o, "sh", "-c", "ls -d "+pattern+" 2>/dev/null || true"))
}

// TestContivk8s attaches a pod by contivk8s and the agent, with packets, and takes it away while the agent is down: with the agent back all is
// as before, and before that cnictl says what is left.
func TestContivk8s(t *testing.T) {
	t.Parallel()
	host, outside := node(t)
	host.Feed(t, demo, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-demo.conflist")
	host.Feed(t, shim, "sh", "-c", "cat >/etc/cni/net.d/05-contiv.conflist")
	o := &operator{t, host}
	stop := o.serveContiv()
	if err := host.StatusList(shim); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	pod, rt := o.pod("web")
	result, err := host.AddList(shim, rt)
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := netlab.Addresses(result)
	if !v4.IsValid() || !v6.IsValid() || len(result.Interfaces) != 2 || len(result.Routes) != 2 {
		t.Errorf("the result is %+v", result)
	}
	if err := host.CheckList(shim, rt); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	pod.ServeTCP(t, ":80")
	for from, target := range map[*netlab.Namespace]string{
		&host.Namespace: v4.String() + ":80", &outside.Namespace: netlab.HostIPv4 + ":8080",
	} {
		if answer, err := from.DialTCP(target, netlab.Patience); err != nil || !strings.HasPrefix(answer, "web saw") {
			t.Errorf("%s: %q, %v", target, answer, err)
		}
	}
	if printed := o.must("show", pod.ID); !strings.Contains(printed, "contiv endpoint of pod shop/web") {
		t.Errorf("cnictl show does not have it:\n%s", printed)
	}

	stop()
	if err := host.DelList(shim, rt); err != nil {
		t.Errorf("DEL with the agent down: %v", err)
	}
	pod.Delete(t)
	if queued, leases := o.files(contiv.Dir+"/deletions/*"), o.leases(); len(queued) != 1 || !strings.Contains(leases, v4.String()) {
		t.Errorf("queued are %q, leases %q", queued, leases)
	}
	left := "deletion of contiv-net/" + pod.ID
	if printed := o.must("gc"); !strings.Contains(printed, left) {
		t.Errorf("cnictl gc does not have it:\n%s", printed)
	}
	if code, printed := o.cnictl("gc", "--apply"); code == 0 || !strings.Contains(printed, contiv.DefaultSocket) {
		t.Errorf("cnictl gc without the agent: exit code %d\n%s", code, printed)
	}

	stop = o.serveContiv()
	o.eventually("[ ! -e " + contiv.Dir + "/deletions ]")
	if leases := o.leases(); leases != "" {
		t.Errorf("left are the leases %s", leases)
	}
	pod, rt = o.pod("again")
	if _, err := host.AddList(shim, rt); err != nil {
		t.Error(err)
	}
	if err := host.DelList(shim, rt); err != nil {
		t.Error(err)
	}
	if leases, noted := o.leases(), o.files(contiv.Dir+"/*"); leases != "" || len(noted) > 0 {
		t.Errorf("left are %q, %q", leases, noted)
	}
	pod.Delete(t)
	stop()
	if printed := o.must("purge", "--apply"); !strings.Contains(printed, contiv.Dir) || len(o.files(contiv.Dir)) != 0 {
		t.Errorf("purge leaves %s:\n%s", contiv.Dir, printed)
	}
}

// TestContivk8sPurge: what the daemon can't be told of is in purge's way, which says what to do.
func TestContivk8sPurge(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.Feed(t, shim, "sh", "-c", "cat >/etc/cni/net.d/05-contiv.conflist")
	stop := o.serveContiv()
	var pods []*netlab.Pod
	for i := range 2 {
		pod, rt := o.pod(fmt.Sprint("web", i))
		rt.CapabilityArgs = nil
		if _, err := o.host.AddList(shim, rt); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	stop()
	for _, pod := range pods {
		pod.Delete(t)
	}
	o.age()
	o.host.MustRun(t, "sh", "-ec", `sed -i 's/"since":"20../"since":"2001/' `+contiv.Dir+"/*.json") // long before the result
	for range 2 {
		code, printed := o.cnictl("purge", "--apply")
		if queued := o.files(contiv.Dir + "/deletions/*"); code == 0 || len(queued) != 2 || !strings.Contains(printed, "to give the deletion up, remove "+queued[0]) {
			t.Errorf("exit code %d, queued are %q:\n%s", code, queued, printed)
		}
	}
	stop = o.serveContiv()
	o.eventually("[ ! -e " + contiv.Dir + "/deletions ]")
	stop()
	printed := o.must("purge", "--apply")
	if left := o.files("/var/lib/cni/contivk8s /var/lib/cni/networks"); len(left) > 0 {
		t.Errorf("left are %q\n%s", left, printed)
	}
}
