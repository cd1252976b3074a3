package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

// whyTraced says what a trace of the test's packets saw: the first cause for which one is lost, and what to do.
func (w *subject) whyTraced(t *Test) (reason, remedy string) {
	if t == nil || t.target.Addr().IsLinkLocalUnicast() {
		return "", ""
	}
	key := fmt.Sprint(w.nameOf(t.from), t.To, t.protocol, t.size)
	if known, ok := w.traced[key]; ok {
		return known[0], known[1]
	}
	q := w.request(t)
	const patience = time.Second
	q.Brief, q.Timeout = true, patience
	r, err := trace.Trace(context.Background(), *q)
	if err == nil && r.Cause != nil && !r.Cause.IsVague() {
		reason, remedy = r.Cause.Summary, r.Cause.Remedy
	}
	w.traced[key] = [2]string{reason, remedy}
	return reason, remedy
}

func (w *subject) nameOf(c *Container) string {
	if c == nil {
		return ""
	}
	return c.Name
}

// request is a test as trace takes it.
func (w *subject) request(t *Test) *trace.Request {
	q := &trace.Request{Flow: trace.Flow{To: t.target.Addr().WithZone("")}, Source: w.traceable(t.from), Target: w.traceable(t.reached),
		Size: t.size, Host: &node.Host{}, Plugins: w.node.Plugins}
	switch t.protocol {
	case tcp:
		q.Protocol, q.ToPort = trace.TCP, t.target.Port()
	case udp:
		q.Protocol, q.ToPort = trace.UDP, t.target.Port()
	default:
		q.Protocol = trace.Ping
	}
	return q
}

// traceable is a container as trace takes it.
func (w *subject) traceable(c *Container) *trace.Container {
	if c == nil {
		return nil
	}
	a := &node.Attachment{Network: w.list.Name, ContainerID: c.ID, IfName: ifName, Gateways: c.Gateways,
		Result: &node.Result{NetworkAttachment: libcni.NetworkAttachment{Config: w.list.Bytes}, Result: c.result}}
	for _, ip := range c.Addresses {
		a.Addresses = append(a.Addresses, netip.PrefixFrom(ip, ip.BitLen()))
	}
	if end := c.hostEnd(); end != nil {
		a.HostEnd = &node.Link{Name: end.Attrs().Name, Link: end}
	}
	return &trace.Container{Name: c.Name, Netns: c.rt.NetNS, Attachments: []*node.Attachment{a}}
}

// tryOutside asks as somebody outside of the node would, where a packet can be let in: a node that is a container itself may have no /dev/net/tun. The time
// to wait begins when the packet is let in: what follows it is made before.
func (w *subject) tryOutside(ctx context.Context, t *Test, timeout time.Duration) error {
	q := w.request(t)
	q.Outside, q.Brief, q.Timeout = true, true, timeout
	q.From = trace.Stranger(q.Host, q.To)
	r, err := trace.Trace(ctx, *q)
	if err != nil {
		t.Outcome, t.Note = NotTried, fmt.Sprintf("not tried: %v", err)
		return nil
	}
	if r.Cause == nil {
		return nil
	}
	t.lost = &Loss{Packet: requestPacket, Reason: r.Cause.Summary, Remedy: r.Cause.Remedy}
	return errors.New(r.Cause.Summary)
}
