package operator

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// patient is a node whose containers something is taken from.
type patient struct {
	*operator
	outside *netlab.Outside
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	host, outside := node(t)
	return &patient{operator: &operator{t, host}, outside: outside}
}

// container is one attachment, with a server that answers whoever connects for as long as the connection lasts.
type container struct {
	*netlab.Pod
	list    string
	address string
	end     string // the host end
}

// add attaches a container.
func (p *patient) add(list, name string, capabilities map[string]any) *container {
	p.Helper()
	c := &container{Pod: p.host.NewPod(p, name), list: list}
	c.SetLoopbackUp(p)
	result, err := p.host.AddList(list, c.RuntimeConf(capabilities))
	if err != nil {
		p.Fatal(err)
	}
	v4, _ := netlab.Addresses(result)
	c.address = v4.String()
	for _, i := range result.Interfaces {
		if i.Sandbox == "" && strings.HasPrefix(i.Name, "veth") {
			c.end = i.Name
		}
	}
	return c
}

// serve answers each connection to port 80 of the container with what it sends.
func (c *container) serve(t *testing.T) {
	t.Helper()
	var listener net.Listener
	var err error
	c.Do(func() { listener, err = net.Listen("tcp", ":80") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
}

// dial connects from a namespace, and has an answer.
func dial(t *testing.T, from *netlab.Namespace, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := echo(conn); err != nil {
		t.Fatalf("connection to %s: %v", address, err)
	}
	return conn
}

// echo sends something over a connection, and waits until it comes back.
func echo(conn net.Conn) error {
	text := []byte("are you there\n")
	if err := conn.SetDeadline(time.Now().Add(2 * timeout)); err != nil {
		return err
	}
	if _, err := conn.Write(text); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(text)))
	return err
}

// ofRepair begin the lines of a snapshot that tell of what a repair has for itself.
var ofRepair = []string{"file /run/cnibox", "file /run/xtables.lock"}

// harm is something that is done to a network, and to one container's attachment.
type harm struct {
	name    string
	network string // plugins of its list
	host    string // a shell script on the host, in which END is the host end, and ADDRESS the container's
	inside  string // one in the container
	finds   string // what repair says is missing
	prepare string // a shell script on the host before ADD
}

const (
	ranges  = `"ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]], "routes": [{"dst": "10.99.0.0/16"}]`
	bridged = `{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", ` + ranges + `}}`
	ports   = `{"type": "portmap", "capabilities": {"portMappings": true}}`
)

func list(plugins string) string {
	return `{"cniVersion": "1.1.0", "name": "demo", "plugins": [` + plugins + `]}`
}

// harms are what repair mends whole: afterwards all is as before.
var harms = []harm{
	{name: "flush of nftables", network: bridged + "," + ports, host: "nft flush ruleset", finds: "table inet cnibox"},
	{name: "address and routes of the container", network: bridged + "," + ports, inside: "ip address flush dev eth0", finds: "lacks the address"},
	{name: "routes of the container", network: bridged + "," + ports, inside: "ip route flush table main; ip -6 route flush table main", finds: "lacks the route"},
	{name: "port out of the bridge", network: bridged + "," + ports, host: "ip link set END nomaster", finds: "is not in bridge demo0"},
}

func TestRepair(t *testing.T) {
	t.Parallel()
	for _, h := range harms {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			h.test(t)
		})
	}
}

func (h harm) test(t *testing.T) {
	p := newPatient(t)
	p.script(h.prepare)
	web, other := p.add(list(h.network), "web", port(8080, 80, "tcp")), p.add(list(h.network), "other", port(8081, 80, "tcp"))
	web.serve(t)
	other.serve(t)
	target := netlab.HostIPv4 + ":8080"
	if !strings.Contains(h.network, "portmap") {
		target = web.address + ":80"
		p.outside.AddRoute(t, web.address)
	}
	open := dial(t, &p.outside.Namespace, target)
	before, inside := p.host.Snapshot(t), web.Snapshot(t)
	p.script(strings.NewReplacer("END", web.end, "ADDRESS", web.address).Replace(h.host))
	if h.inside != "" {
		web.MustRun(t, "sh", "-ec", h.inside)
	}
	harmed, harmedInside := p.host.Snapshot(t), web.Snapshot(t)
	code, printed := p.cnictl("repair", "--dry-run")
	if code != 1 || !strings.Contains(printed, h.finds) {
		t.Fatalf("dry run: exit code %d, want one that finds %q\n%s", code, h.finds, printed)
	}
	if diff := harmed.Diff(p.host.Snapshot(t)) + harmedInside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("the dry run has changed:\n%s", diff)
	}
	code, printed = p.cnictl("repair")
	t.Log(printed)
	if code != 0 || !strings.Contains(printed, "repaired") {
		t.Errorf("repair: exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), ofRepair...) + inside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("after the repair:\n%s\n%s", diff, printed)
	}
	if err := echo(open); err != nil {
		t.Errorf("the connection that was open: %v", err)
	}
	dial(t, &p.outside.Namespace, target)
	if code, printed := p.cnictl("repair"); code != 0 || !strings.Contains(printed, "2 attachments: 2 right") {
		t.Errorf("a second repair: exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(p.host.Snapshot(t), ofRepair...) + inside.Diff(web.Snapshot(t)); diff != "" {
		t.Errorf("after the second repair:\n%s", diff)
	}
}

func (p *patient) script(text string) {
	p.Helper()
	if text != "" {
		p.host.MustRun(p, "sh", "-ec", text)
	}
}
