package multihost

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// conflist is that of flannel's own manifest, in a newer version of CNI.
const conflist = `{"cniVersion":"1.1.0","name":"cbr0","plugins":[
	{"type":"flannel","delegate":{"hairpinMode":true,"isDefaultGateway":true}},
	{"type":"portmap","capabilities":{"portMappings":true}}]}`

const (
	etcdURL    = "http://172.31.7.254:2379"
	subnetFile = "/run/flannel/subnet.env"
	// silence is how long an answer is waited for that must not come, or before it is asked for again.
	silence = time.Second
)

// cluster is nodes on one segment, with etcd on a machine of its own, which is the segment's switch too.
type cluster struct {
	*testing.T
	center   *netlab.Host
	stopEtcd func()
	flanneld string
	nodes    []*node
}

// node is a machine that runs pods.
type node struct {
	*netlab.Host
	cluster *cluster
	name    string
	address string
	stop    func() // the daemon
}

// pod is an attached one, which answers on port 80 of TCP and UDP.
type pod struct {
	*netlab.Pod
	node    *node
	ports   map[string]any
	address string
}

// newCluster returns one of three nodes whose daemons use a backend of flannel.
func newCluster(t *testing.T, backend string) *cluster {
	t.Helper()
	c := &cluster{T: t, center: netlab.NewHost(t), flanneld: filepath.Join(netlab.Module(t, "test/multihost/flanneld", "."), "flanneld")}
	c.center.MustRun(t, "ip", "link", "add", "switch0", "type", "bridge", "forward_delay", "0")
	c.center.MustRun(t, "ip", "address", "add", "172.31.7.254/24", "dev", "switch0")
	c.center.MustRun(t, "ip", "link", "set", "switch0", "up")
	c.startEtcd()
	netlab.Eventually(c, func() error {
		return c.put("/coreos.com/network/config", fmt.Sprintf(`{"Network":"10.244.0.0/16","Backend":{"Type":%q}}`, backend))
	})
	for range 3 {
		c.join()
	}
	return c
}

// startEtcd starts etcd, with what it knew when it was stopped.
func (c *cluster) startEtcd() {
	c.Helper()
	c.stopEtcd = c.start(c.center, "etcd", "--data-dir", "/run/etcd", "--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn")
}

// put stores a value in etcd.
func (c *cluster) put(key, value string) error {
	client := &http.Client{Transport: &http.Transport{DialContext: c.center.DialContext, DisableKeepAlives: true}, Timeout: netlab.Patience}
	encode := base64.StdEncoding.EncodeToString
	answer, err := client.Post(etcdURL+"/v3/kv/put", "application/json",
		strings.NewReader(fmt.Sprintf(`{"key":%q,"value":%q}`, encode([]byte(key)), encode([]byte(value)))))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s", answer.Status)
	}
	return nil
}

// start starts a program on a machine, and returns what kills it. The end of the test does it too.
func (c *cluster) start(host *netlab.Host, program string, args ...string) (stop func()) {
	c.Helper()
	cmd, output := host.Command(program, args...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := host.Start(cmd); err != nil {
		c.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if c.Failed() {
			c.Logf("%s printed:\n%s", program, output)
		}
	})
	c.Cleanup(stop)
	return stop
}

// join adds a node that has its subnet.
func (c *cluster) join() *node {
	c.Helper()
	i := len(c.nodes) + 1
	n := &node{Host: netlab.NewHost(c), cluster: c, name: fmt.Sprint("node", i), address: fmt.Sprint("172.31.7.", i)}
	n.InstallPlugins(c, "flannel", "bridge", "host-local", "portmap")
	c.center.MustRun(c, "ip", "link", "add", n.name, "master", "switch0", "type", "veth", "peer", "name", "eth0", "netns", n.NetnsPath())
	c.center.MustRun(c, "ip", "link", "set", n.name, "up")
	n.MustRun(c, "ip", "address", "add", n.address+"/24", "dev", "eth0")
	n.MustRun(c, "ip", "link", "set", "eth0", "up")
	n.MustRun(c, "ip", "route", "add", "default", "via", "172.31.7.254")
	c.nodes = append(c.nodes, n)
	n.startDaemon()
	return n
}

// startDaemon starts flannel's daemon and waits until STATUS says that the node is ready.
func (n *node) startDaemon() {
	n.cluster.Helper()
	n.stop = n.cluster.start(n.Host, n.cluster.flanneld, etcdURL, "eth0")
	netlab.Eventually(n.cluster, func() error { return n.StatusList(conflist) })
	n.cluster.Logf("%s: %s", n.name, strings.Join(strings.Fields(n.MustRun(n.cluster, "cat", subnetFile)), " "))
}

// add attaches a pod.
func (n *node) add(name string, ports map[string]any) *pod {
	n.cluster.Helper()
	p := &pod{Pod: n.NewPod(n.cluster, name), node: n, ports: ports}
	result, err := n.AddList(conflist, p.RuntimeConf(ports))
	if err != nil {
		n.cluster.Fatalf("ADD %s: %v", name, err)
	}
	p.address = result.IPs[0].Address.IP.String()
	p.ServeTCP(n.cluster, ":80")
	p.ServeUDP(n.cluster, ":80")
	return p
}

// del detaches pods, and makes sure that nothing on their nodes names them any more.
func (c *cluster) del(pods ...*pod) {
	c.Helper()
	for _, p := range pods {
		if err := p.node.DelList(conflist, p.RuntimeConf(p.ports)); err != nil {
			c.Errorf("DEL %s: %v", p.Name(), err)
		}
		for _, line := range p.node.Snapshot(c).Lines("") {
			for _, name := range []string{p.ID, p.address + " ", p.address + "/"} {
				if strings.Contains(line, name) && !strings.Contains(line, "last_reserved_ip") {
					c.Errorf("DEL of %s has left: %s", p.Name(), line)
				}
			}
		}
	}
}

// reaches makes sure that a pod or a node gets an answer over TCP and UDP, by a server that has seen this address.
func (c *cluster) reaches(from *netlab.Namespace, to, answer string) {
	c.Helper()
	netlab.Eventually(c, func() error {
		for _, dial := range []func(string, time.Duration) (string, error){from.DialTCP, from.DialUDP} {
			if got, err := dial(to, silence); err != nil || got != answer {
				return fmt.Errorf("%s from %s: %q, %v; want %q", to, from.Name(), got, err, answer)
			}
		}
		return nil
	})
}

// reachEachOther makes sure of all pods that they do, and see each other's own addresses.
func (c *cluster) reachEachOther(pods ...*pod) {
	c.Helper()
	for _, from := range pods {
		for _, to := range pods {
			if from != to {
				c.reaches(&from.Namespace, to.address+":80", to.Name()+" saw "+from.address)
				c.Logf("%s (%s on %s) reaches %s (%s on %s), which sees its address", from.Name(), from.address, from.node.name, to.Name(), to.address, to.node.name)
			}
		}
	}
}

// sends has a pod send one packet of so many bytes, with headers, that must not be split.
func (p *pod) sends(bytes int, to *pod) error {
	const headers = 28 // IPv4 and ICMP
	_, err := p.Output(exec.Command("ping", "-n", "-c", "1", "-W", fmt.Sprint(netlab.Patience.Seconds()), "-M", "do", "-s", fmt.Sprint(bytes-headers), to.address))
	return err
}
