package etcd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/cnibox/cnibox/test/netlab"
)

// silence is how long a member is waited for before it is asked again: it may be paused or cut off.
const silence = 5 * time.Second

// cluster is hosts on one LAN, each with a member of etcd. The LAN's switch is a machine of its own, which sees all hosts that are connected.
type cluster struct {
	center *netlab.Host
	hosts  []*host
	options
	client *clientv3.Client // of the administrator
	cnictl string
}

// options of a cluster.
type options struct {
	authority *authority    // that has signed the certificates; nil is without TLS
	arguments []string      // more for etcd
	apart     time.Duration // between the clocks of one member and the next
	disk      string        // the size of the last member's disk; "" is any
}

// host is a machine that runs containers and a member of etcd.
type host struct {
	*netlab.Host
	cluster       *cluster
	index         int
	name, address string
	pod           *netlab.Pod // the namespace of all containers, as IPAM leaves that alone
	member        *exec.Cmd
	printed       *bytes.Buffer
}

func newCluster(t testing.TB, o options) *cluster {
	t.Helper()
	c := &cluster{center: netlab.NewHost(t), options: o, cnictl: netlab.Cnictl(t)}
	c.center.MustRun(t, "ip", "link", "add", "switch0", "type", "bridge", "forward_delay", "0")
	c.center.MustRun(t, "ip", "address", "add", "172.31.8.254/24", "dev", "switch0")
	c.center.MustRun(t, "ip", "link", "set", "switch0", "up")
	for i := range 3 {
		h := &host{Host: netlab.NewHost(t), cluster: c, index: i, name: fmt.Sprint("node", i+1), address: fmt.Sprint("172.31.8.", i+1)}
		h.InstallPlugins(t, "macvlan", "host-local")
		h.InstallPlugins(t, "etcd")
		c.center.MustRun(t, "ip", "link", "add", h.name, "master", "switch0", "type", "veth", "peer", "name", "eth0", "netns", h.NetnsPath())
		c.center.MustRun(t, "ip", "link", "set", h.name, "up")
		h.MustRun(t, "ip", "address", "add", h.address+"/24", "dev", "eth0")
		h.MustRun(t, "ip", "link", "set", "eth0", "up")
		h.MustRun(t, "sh", "-ec", "mkdir -p /run/overlay/etc /run/overlay/work /run/etcd; "+
			"mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/overlay/etc,workdir=/run/overlay/work /etc; "+
			fmt.Sprintf("rm -f /etc/machine-id; printf '%%032d\\n' %d >/etc/machine-id", i+1))
		if o.disk != "" && i == 2 {
			h.MustRun(t, "mount", "-t", "tmpfs", "-o", "size="+o.disk, "tmpfs", "/run/etcd")
		}
		h.pod = h.NewPod(t, h.name)
		c.hosts = append(c.hosts, h)
	}
	if o.authority != nil {
		o.authority.install(t, c)
	}
	for _, h := range c.hosts {
		h.startMember(t)
		t.Cleanup(func() { h.killMember() })
	}
	t.Cleanup(func() {
		for _, h := range c.hosts {
			if t.Failed() && h.printed.Len() > 0 {
				t.Logf("etcd on %s printed:\n%s", h.name, h.printed)
			}
		}
	})
	c.client = c.dial(t, clientv3.Config{})
	c.awaitHealth(t)
	return c
}

// dial makes a client of all members, which is in the LAN.
func (c *cluster) dial(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger, config.Endpoints, config.DialKeepAliveTime, config.DialKeepAliveTimeout = zap.NewNop(), c.endpoints(), time.Second, 2*time.Second
	config.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (conn netConn, err error) {
		return c.center.DialContext(ctx, "tcp", address)
	})}
	if c.authority != nil {
		config.TLS = c.authority.client(t)
	}
	var client *clientv3.Client
	netlab.Eventually(t, func() (err error) { // with a user it asks for a token, once
		client, err = clientv3.New(config)
		return err
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *cluster) scheme() string {
	if c.authority != nil {
		return "https"
	}
	return "http"
}

func (c *cluster) endpoints() (list []string) {
	for _, h := range c.hosts {
		list = append(list, h.endpoint())
	}
	return list
}

func (h *host) endpoint() string { return h.cluster.scheme() + "://" + h.address + ":2379" }

// peer is where other members reach this host's.
func (h *host) peer() string { return h.cluster.scheme() + "://" + h.address + ":2380" }

// peers are all members, as etcd reads them.
func (h *host) peers() string {
	var all []string
	for _, each := range h.cluster.hosts {
		all = append(all, each.name+"="+each.peer())
	}
	return strings.Join(all, ",")
}

// startMember starts this host's member, with what it knew when it was stopped. Another server than the distribution's is in CNIBOX_ETCD_DIR, with its etcdutl.
func (h *host) startMember(t testing.TB) {
	t.Helper()
	c := h.cluster
	args := []string{filepath.Join(os.Getenv("CNIBOX_ETCD_DIR"), "etcd"), "--name", h.name, "--data-dir", "/run/etcd/data", "--logger", "zap", "--log-level", "error", "--initial-cluster", h.peers(),
		"--listen-client-urls", h.endpoint(), "--advertise-client-urls", h.endpoint(), "--listen-peer-urls", h.peer(), "--initial-advertise-peer-urls", h.peer()}
	if c.authority != nil {
		args = append(args, c.authority.arguments()...)
	}
	args = append(args, c.arguments...)
	if c.apart != 0 {
		seconds := fmt.Sprint(int(c.apart.Seconds()) * h.index)
		args = append([]string{"unshare", "--time", "--monotonic", seconds, "--boottime", seconds, "--fork", "--kill-child"}, args...)
	}
	h.member, h.printed = h.Command(args[0], args[1:]...), &bytes.Buffer{}
	h.member.Stdout, h.member.Stderr = h.printed, h.printed
	if err := h.Start(h.member); err != nil {
		t.Fatal(err)
	}
}

func (h *host) killMember() {
	_ = h.member.Process.Kill()
	_ = h.member.Wait()
}

func (h *host) pauseMember()    { _ = h.member.Process.Signal(syscall.SIGSTOP) }
func (h *host) continueMember() { _ = h.member.Process.Signal(syscall.SIGCONT) }

// cut takes the host off the LAN, or puts it on again.
func (h *host) cut(t testing.TB)     { h.cluster.center.MustRun(t, "ip", "link", "set", h.name, "down") }
func (h *host) connect(t testing.TB) { h.cluster.center.MustRun(t, "ip", "link", "set", h.name, "up") }

// awaitHealth waits until each member answers with what all have agreed on.
func (c *cluster) awaitHealth(t testing.TB) {
	t.Helper()
	for _, h := range c.hosts {
		netlab.Eventually(t, func() error {
			ctx, end := context.WithTimeout(context.Background(), silence)
			defer end()
			if status, err := c.client.Status(ctx, h.endpoint()); err != nil || status.Leader == 0 {
				return fmt.Errorf("%s: no leader, %v", h.name, err)
			}
			_, err := c.client.Get(ctx, "/health")
			return err
		})
	}
}

// leader returns the host whose member leads the others.
func (c *cluster) leader(t testing.TB) (leads *host) {
	t.Helper()
	netlab.Eventually(t, func() error {
		for _, h := range c.hosts {
			ctx, end := context.WithTimeout(context.Background(), silence)
			status, err := c.client.Status(ctx, h.endpoint())
			end()
			if err == nil && status.Leader == status.Header.MemberId {
				leads = h
				return nil
			}
		}
		return fmt.Errorf("no member leads")
	})
	return leads
}
