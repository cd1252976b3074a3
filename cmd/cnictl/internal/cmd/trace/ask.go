package trace

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/container"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// ask is what a person asks for.
type ask struct {
	from, to, link string
	size           int
	watch          bool
	timeout        time.Duration
}

// thisNode is who sends if it is the node itself.
const thisNode = "node"

// request finds on the node what was asked for.
func (a ask) request(ctx context.Context, o node.Options) (*trace.Request, error) {
	if a.to == "" {
		return nil, ui.Usagef("say where the packet goes, with --to: an address, a container, or a published port")
	}
	q := &trace.Request{Link: a.link, Size: a.size, Watch: a.watch, Timeout: a.timeout, Plugins: o.Plugins}
	n := node.Read(ctx, o)
	q.Host = &n.Host
	if err := a.findSender(n, q); err != nil {
		return nil, err
	}
	where, port, protocol, err := parseWhere(a.to)
	if err != nil {
		return nil, err
	}
	q.Protocol, q.ToPort = protocol, port
	if err := findTarget(n, q, where); err != nil {
		return nil, err
	}
	switch {
	case q.Outside && q.Watch:
		q.Outside = false
	case q.Outside && !q.From.IsValid():
		q.From = trace.Stranger(q.Host, q.To)
	}
	switch {
	case a.size > 0 && q.Protocol == trace.TCP:
		return nil, ui.Usagef("--size is for pings and UDP: TCP makes its packets as large as it likes")
	case a.link != "" && !q.Outside:
		return nil, ui.Usagef("--link is for packets from outside")
	case q.From.IsValid() && q.From.Is4() != q.To.Is4():
		return nil, ui.Usagef("%s and %s are addresses of two families", q.From, q.To)
	}
	return q, nil
}

// findSender finds who sends.
func (a ask) findSender(n *node.Node, q *trace.Request) error {
	address, err := netip.ParseAddr(a.from)
	switch {
	case a.from == "":
		q.Outside = true
		return nil
	case a.from == thisNode:
		return nil
	case err == nil && len(n.Find(a.from)) == 0:
		q.From = address
		q.Outside = !trace.IsOfNode(address)
		return nil
	}
	q.Source, err = find(n, a.from)
	return err
}

func find(n *node.Node, name string) (*trace.Container, error) {
	c, err := container.FindOn(n, name)
	if err != nil {
		return nil, err
	}
	return &trace.Container{Name: name, Netns: c.Netns, Attachments: c.Attachments}, nil
}

// parseWhere reads ADDRESS, CONTAINER, either with :PORT[/PROTOCOL] behind it, or PORT[/PROTOCOL].
func parseWhere(text string) (where string, port uint16, protocol trace.Protocol, err error) {
	bare, name, given := strings.Cut(text, "/")
	protocol = trace.TCP
	switch {
	case given && (name == "tcp" || name == "udp"):
		protocol = trace.Protocol(name)
	case given:
		return text, 0, trace.Ping, nil // the name of an attachment, or the path of a namespace
	}
	if n, err := strconv.ParseUint(bare, 10, 16); err == nil && n > 0 {
		return "", uint16(n), protocol, nil
	}
	if _, err := netip.ParseAddr(bare); err == nil && !given {
		return bare, 0, trace.Ping, nil
	}
	host, digits, err := net.SplitHostPort(bare)
	if err != nil && !given {
		return bare, 0, trace.Ping, nil
	}
	n, wrong := strconv.ParseUint(digits, 10, 16)
	if err != nil || wrong != nil || n == 0 || host == "" {
		return "", 0, "", ui.Usagef("--to %s: give ADDRESS, CONTAINER, either with :PORT behind it, or PORT, such as 192.0.2.1:443, web:80 or 8080/udp", text)
	}
	return host, uint16(n), protocol, nil
}

// findTarget finds where the packet goes, and the container that gets it in the end.
func findTarget(n *node.Node, q *trace.Request, where string) (err error) {
	if where == "" {
		return findPublished(n, q)
	}
	if q.To, err = netip.ParseAddr(where); err == nil {
		switch {
		case q.Source == nil && q.Outside && q.To.IsLoopback():
			return ui.Usagef("nobody outside reaches %s; --from node does", q.To)
		case len(n.Find(where)) > 0:
			q.Target, err = find(n, where)
		case trace.IsOfNode(q.To) && q.ToPort != 0:
			if a, _ := publisher(n, q); a != nil {
				q.Target = containerOf(a)
			}
		case q.Outside && !trace.IsOfNode(q.To):
			return ui.Usagef("neither the node nor a container on it has %s: name who sends, with --from", q.To)
		}
		return err
	}
	if q.Target, err = find(n, where); err != nil {
		return err
	}
	for _, a := range q.Target.Attachments {
		for _, p := range a.Addresses {
			if !q.To.IsValid() && (!q.From.IsValid() || q.From.Is4() == p.Addr().Is4()) {
				q.To = p.Addr()
			}
		}
	}
	if !q.To.IsValid() {
		return plugin.CodeErrorf(types.ErrUnknownContainer, "name one of its addresses", "container %s has no address that a network has given it", where)
	}
	return nil
}

// findPublished finds the container of a published port, and an address of the node by which who sends reaches it.
func findPublished(n *node.Node, q *trace.Request) error {
	a, p := publisher(n, q)
	if a == nil {
		return plugin.CodeErrorf(types.ErrUnknownContainer, "cnictl show lists published ports; to trace a packet to the node itself, name its address too",
			"no container of this node publishes port %d/%s", q.ToPort, q.Protocol)
	}
	q.Target = containerOf(a)
	if host, err := netip.ParseAddr(p.HostIP); err == nil && !host.IsUnspecified() {
		q.To = host
		return nil
	}
	q.To = trace.AddressOfNode(q.Host, q.From)
	for i := 0; !q.To.IsValid() && i < len(a.Gateways); i++ {
		q.To = a.Gateways[i]
	}
	if !q.To.IsValid() {
		return fmt.Errorf("the node has no address at which others could ask for port %d", q.ToPort)
	}
	return nil
}

func publisher(n *node.Node, q *trace.Request) (*node.Attachment, node.Port) {
	for _, a := range n.Attachments {
		for _, p := range a.Ports {
			host, err := netip.ParseAddr(p.HostIP)
			isAny := err != nil || host.IsUnspecified() || !q.To.IsValid() || host == q.To
			if p.HostPort == int(q.ToPort) && p.Protocol == string(q.Protocol) && isAny && !a.State.IsOver() && a.Namespace != nil {
				return a, p
			}
		}
	}
	return nil, node.Port{}
}

func containerOf(a *node.Attachment) *trace.Container {
	return &trace.Container{Name: a.ContainerID, Netns: a.Namespace.Path(), Attachments: []*node.Attachment{a}}
}
