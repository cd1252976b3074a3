package harmtest

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// Plugins are those of a node.
var Plugins = []string{"bridge", "ptp", "macvlan", "ipvlan", "vlan", "dummy", "host-device", "tap", "host-local", "static", "dhcp", "tuning", "portmap",
	"firewall", "egress", "bandwidth", "sbr", "vrf", "dnsname", "flannel", "contivk8s", "loopback", "chain"}

// Container is one attachment, with a server that answers whoever connects for as long as the connection lasts.
type Container struct {
	*netlab.Pod
	List    string
	Address string
	End     string // the host end
	IFB     string
}

// names are what scripts call things by.
func (c *Container) names() *strings.Replacer {
	return strings.NewReplacer("END", c.End, "IFB", c.IFB, "ADDRESS", c.Address)
}

// Attach makes a container and attaches it.
func Attach(t testing.TB, host *netlab.Host, list, name string, capabilities map[string]any) *Container {
	t.Helper()
	c := &Container{Pod: host.NewPod(t, name), List: list}
	c.SetLoopbackUp(t)
	result, err := host.AddList(list, c.RuntimeConf(capabilities))
	if err != nil {
		t.Fatal(err)
	}
	v4, _ := netlab.Addresses(result)
	c.Address = v4.String()
	for _, i := range result.Interfaces {
		switch {
		case strings.HasPrefix(i.Name, "veth"):
			c.End = i.Name
		case strings.HasPrefix(i.Name, "bwp"):
			c.IFB = i.Name
		}
	}
	return c
}

// Port is the capability argument that publishes a port of the container.
func Port(host, container int, protocol string) map[string]any {
	return map[string]any{"portMappings": []map[string]any{{"hostPort": host, "containerPort": container, "protocol": protocol}}}
}

// Script runs a shell script, if there is one.
func Script(t testing.TB, in *netlab.Namespace, text string) {
	t.Helper()
	if text != "" {
		in.MustRun(t, "sh", "-ec", text)
	}
}

// Serve answers each connection to port 80 of the container with what it sends.
func (c *Container) Serve(t testing.TB) {
	t.Helper()
	var listener net.Listener
	var err error
	idle := net.ListenConfig{KeepAlive: -1} // as a probe would be a packet where a connection is to be silent
	c.Do(func() { listener, err = idle.Listen(t.Context(), "tcp", ":80") })
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

// Dial connects from a namespace, and has an answer. Of itself the connection then sends nothing.
func Dial(t testing.TB, from *netlab.Namespace, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netlab.Patience)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetKeepAlive(false); err != nil {
		t.Fatal(err)
	}
	if err := Echo(conn); err != nil {
		t.Fatalf("connection to %s: %v", address, err)
	}
	return conn
}

// Echo sends something over a connection, and waits until it comes back.
func Echo(conn net.Conn) error {
	text := []byte("are you there\n")
	if err := conn.SetDeadline(time.Now().Add(netlab.Patience)); err != nil {
		return err
	}
	if _, err := conn.Write(text); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(text)))
	return err
}
