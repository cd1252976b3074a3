package systemd

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

const agentSocket = "/run/cnibox-agent/agent.sock"

// until waits until a script succeeds beside systemd, and fails the test with what it printed last.
func until(t *testing.T, script string) {
	t.Helper()
	begun := time.Now()
	err := netlab.Await(func() error {
		printed, err := inside(script)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, printed)
		}
		return err
	})
	if err != nil {
		t.Fatalf("after %s: %v\n%s", netlab.Patience, err, must(t, "systemctl status --no-pager -l 'cnibox-agent*' || true; tail -50 /run/systemd.log"))
	}
	t.Logf("%.1f s until: %s", time.Since(begun).Seconds(), script)
}

// clientOf returns a client of a socket that waits as long as it takes.
func clientOf(socket string) *http.Client {
	return &http.Client{Timeout: netlab.Patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

// ask has the agent say what it did.
func ask() (status string, err error) {
	answer, err := clientOf(agentSocket).Get("http://localhost/status")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.Status + " " + string(body), err
}

// newAgentNode has the tools, the network demo with its attachments web and db, and the agent's units, with a grace that a test can wait for.
func newAgentNode(t *testing.T) {
	t.Helper()
	installTools(t)
	install(t, "/etc/cni/net.d/10-demo.conflist", []byte(strings.Replace(demo, `"ipMasq": true`, `"ipMasq": true, "macspoofchk": true`, 1)))
	must(t, `set -e; for name in web db; do ip netns add $name; cnictl add demo /run/netns/$name --id $name; done
		mkdir -p /etc/systemd/system/cnibox-agent.service.d
		printf '[Service]\nExecStart=\nExecStart=cnictl agent --dns --grace 1s --every 5s\n' >/etc/systemd/system/cnibox-agent.service.d/grace.conf
		systemctl daemon-reload`)
	t.Cleanup(func() {
		must(t, `systemctl stop cnibox-agent.socket cnibox-agent; for name in $(ls /run/netns); do cnictl del demo --id $name; ip netns del $name; done
			rm -r /etc/systemd/system/cnibox-agent.service.d; systemctl daemon-reload`)
	})
}

// TestAgent has the agent's units do what they are for: a client starts it, it is ready when it says so, does its work with no more rights than it
// has, for attachments too that are younger than it, and stops.
func TestAgent(t *testing.T) {
	newAgentNode(t)
	must(t, "systemctl enable cnibox-agent.service; systemctl start cnibox-agent.socket")
	if state, err := inside("systemctl is-active cnibox-agent.service"); err == nil {
		t.Errorf("before anybody asks the agent is %s", state)
	}
	if printed := must(t, "stat -c '%a %u %F' /run/cnibox-agent "+agentSocket); printed != "700 0 directory\n600 0 socket\n" {
		t.Errorf("the socket: %s", printed)
	}
	if status, err := ask(); err != nil || !strings.HasPrefix(status, "200 ") {
		t.Fatalf("the first client: %s %v", status, err)
	}
	must(t, "systemctl is-active cnibox-agent.service")

	must(t, "ip netns add late; cnictl add demo /run/netns/late --id late")
	must(t, `set -e; iptables -t nat -F; iptables -F; ip -n web addr flush dev eth0; ip -n late route flush table main; ip addr flush dev demo0; nft flush ruleset`)
	until(t, "for name in web db late; do cnictl check demo /run/netns/$name --id $name || exit 1; done")

	end := must(t, "ip -o link show master demo0 | sed 's/^[0-9]*: \\([^@:]*\\).*/\\1/' | while read -r end; do ip -o link show $end | grep -q 'link-netns late' && echo $end; done; true")
	must(t, "touch -d '5 minutes ago' /var/lib/cni/networks/demo/* /var/lib/cni/results/*late*; ip netns del late")
	until(t, "! ip link show "+strings.TrimSpace(end)) // nothing of the agent keeps the namespace
	until(t, "! ls /var/lib/cni/results | grep -q late && ! grep -q late /var/lib/cni/networks/demo/*.*.*.*")
	must(t, "cnictl repair --dry-run; cnictl agent status >&2")

	must(t, "systemctl stop cnibox-agent.socket") // and with it the agent
	if state := must(t, "systemctl is-active cnibox-agent.service; systemctl show -P Result cnibox-agent.service; ls /run/cnibox-agent | grep sock$ || true"); state != "inactive\nsuccess\n" {
		t.Errorf("stopped: %s", state)
	}
}

// TestAgentComesBack: after a crash, and when one that was started by hand is in its way no longer.
func TestAgentComesBack(t *testing.T) {
	newAgentNode(t)
	must(t, "systemctl start cnibox-agent")
	if printed, err := inside("cnictl agent"); err == nil || !strings.Contains(printed, "another agent runs") {
		t.Errorf("a second agent: %v %s", err, printed)
	}
	must(t, "systemctl kill -s KILL cnibox-agent")
	until(t, "[ $(systemctl show -P NRestarts cnibox-agent) = 1 ] && systemctl is-active cnibox-agent")
	must(t, "systemctl stop cnibox-agent.socket cnibox-agent; systemd-run --unit=by-hand -p Type=notify cnictl agent")
	must(t, "systemctl start --no-block cnibox-agent")
	until(t, "[ $(systemctl show -P NRestarts cnibox-agent) -ge 2 ]")
	must(t, "systemctl stop by-hand")
	until(t, "systemctl is-active cnibox-agent")
}

// TestAgentNames has the agent's unit answer for names of containers, for which it has to listen at port 53.
func TestAgentNames(t *testing.T) {
	newAgentNode(t)
	install(t, "/etc/cni/net.d/20-names.conflist", []byte(`{"cniVersion": "1.0.0", "name": "names", "plugins": [
		{"type": "bridge", "bridge": "names0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.67.0.0/24"}]]}},
		{"type": "dnsname", "domainName": "dns.podman"}]}`))
	must(t, "set -e; systemctl start cnibox-agent; ip netns add shop; cnictl add names /run/netns/shop --id shop")
	until(t, "ip netns exec shop busybox nslookup shop.dns.podman 10.67.0.1 | grep 'Address.* 10.67.0.2$'")
	must(t, "cnictl del names --id shop; rm /etc/cni/net.d/20-names.conflist; ip link del names0")
}

// TestAgentRestart restarts the agent while attachments come and go: no call and no client notices.
func TestAgentRestart(t *testing.T) {
	newAgentNode(t)
	must(t, "systemctl start cnibox-agent")
	must(t, "rm -f /run/failed /run/enough")
	calls := make(chan error, 1)
	go func() {
		_, err := inside(`set -e; n=0; until [ -e /run/enough ]; do
			ip netns add burst; cnictl add demo /run/netns/burst --id burst$n; cnictl check demo /run/netns/burst --id burst$n
			cnictl del demo --id burst$n; ip netns del burst; n=$((n+1)); done; [ $n -gt 0 ]`)
		calls <- err
	}()
	for range 3 {
		restart := make(chan error, 1)
		go func() {
			_, err := inside("systemctl restart cnibox-agent")
			restart <- err
		}()
		for under := true; under; {
			if status, err := ask(); err != nil || !strings.HasPrefix(status, "200 ") {
				t.Errorf("a client while the agent restarts: %s %v", status, err)
			}
			select {
			case err := <-restart:
				under = false
				if err != nil {
					t.Error(err)
				}
			default:
			}
		}
	}
	if err := os.WriteFile("/run/enough", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-calls; err != nil {
		t.Error(err)
	}
	must(t, "for name in web db; do cnictl check demo /run/netns/$name --id $name || exit 1; done")
	if left := must(t, "grep -l burst /var/lib/cni/networks/demo/*.*.*.*; ls /var/lib/cni/results | grep burst; true"); left != "" {
		t.Errorf("left of the burst:\n%s", left)
	}
}

// TestAgentContiv has the agent serve contiv's API at a socket of systemd's: with the rights of the unit plugins attach and detach a container.
func TestAgentContiv(t *testing.T) {
	newAgentNode(t)
	must(t, `printf '[Service]\nExecStart=\nExecStart=cnictl agent --contiv /run/contiv/contiv-cni.sock --network demo\n' >/etc/systemd/system/cnibox-agent.service.d/grace.conf
		systemctl daemon-reload; systemctl start cnibox-agent-contiv.socket; ip netns add shop`)
	t.Cleanup(func() { must(t, "systemctl stop cnibox-agent-contiv.socket") })
	const shop = `{"K8S_POD_NAME":"shop","K8S_POD_NAMESPACE":"default","K8S_POD_INFRA_CONTAINER_ID":"shop","CNI_NETNS":"/run/netns/shop","CNI_IFNAME":"eth0"}`
	post := func(path string) string {
		t.Helper()
		request, err := http.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(shop))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := clientOf("/run/contiv/contiv-cni.sock").Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status + " " + string(body)
	}
	if answer := post("/ContivCNI.AddPod"); !strings.HasPrefix(answer, `200 OK {"endpointid":"shop","ipaddress":"10.88.0.`) { // which starts the agent
		t.Fatalf("ADD: %s\n%s", answer, must(t, "systemctl status --no-pager -l cnibox-agent || true"))
	}
	must(t, "cnictl check demo /run/netns/shop --id shop")
	restart := make(chan error, 1)
	go func() {
		_, err := inside("systemctl restart cnibox-agent")
		restart <- err
	}()
	if answer := post("/ContivCNI.DelPod"); !strings.HasPrefix(answer, "200 ") {
		t.Errorf("DEL while the agent restarts: %s", answer)
	}
	if err := <-restart; err != nil {
		t.Error(err)
	}
	if left := must(t, "grep -l shop /var/lib/cni/networks/demo/*.*.*.*; ls /var/lib/cni/results | grep shop; ip -n shop -o link | grep eth0; true"); left != "" {
		t.Errorf("left by DEL:\n%s", left)
	}
}
