package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Container is one on the way of a packet.
type Container struct {
	Name        string // for people
	Netns       string // the path of its network namespace
	Attachments []*node.Attachment
}

// Request is what to trace: one packet from a container, from the node, or from outside.
type Request struct {
	Flow              // From may be left out: it is the address that the sender's kernel takes
	Source *Container // nil: the node, or somebody outside
	Target *Container // who gets the packet in the end; nil: the node, or somebody outside

	Outside  bool   // the packet is let in by a link of the node, as if it came from outside. No answer to it leaves the node
	Link     string // that link; "": by which the node reaches the sender
	Imitated bool   // the packet is let in by the host end of Source's first attachment, as if Source had sent it, and stays on the node. Source has no part in it

	Size    int           // of the packet, which nobody may fragment; 0: a small one
	Watch   bool          // send nothing, and follow the next packet that another sends
	Brief   bool          // the report has no steps
	Timeout time.Duration // how long to wait for the answer, or with Watch for the packet

	Host    *node.Host
	Plugins plugin.Table
}

// run is a packet on its way.
type run struct {
	Request
	flow   Flow // with all that was left out
	source *place
	host   *place
	target *place // nil: the packet ends on the host, or leaves it

	from, to way // of the containers at both ends
	inject   *injector
	packet   packet
	send     *sender

	before, after counters
	steps         map[*place][]Event
	sent          error // why the sender's kernel did not send it, or what it heard of it
	answered      *Event
	astray        *Event // an answer from another than was asked, which the sender does not take for one
	table         string
	rules         map[chainOf]map[uint64]string // as nft prints them, of the chains that were listed
	ports         map[uint16]bool               // that the host has given the sender in place of its own
}

// Trace follows one packet. All that it makes for that goes with it, however it ends.
func Trace(ctx context.Context, q Request) (report *Report, err error) {
	r := &run{Request: q, host: &place{name: "host"}, steps: map[*place][]Event{}, rules: map[chainOf]map[uint64]string{}, ports: map[uint16]bool{}, table: newTableName()}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(); err != nil {
		return nil, err
	}
	if err := r.follow(ctx); err != nil {
		return nil, err
	}
	report = r.report()
	if report.Cause != nil && report.Cause.IsVague() && slices.ContainsFunc(r.places(), func(p *place) bool { return p.missed.Load() }) {
		return nil, errors.New("the kernel told more of the packet than could be read: it meets too many rules")
	}
	return report, nil
}

// open finds the places on the way, and makes what sends.
func (r *run) open() (err error) {
	r.source, r.flow = r.host, r.Flow
	if r.Imitated {
		return r.openImitated()
	}
	if r.Source != nil {
		if r.source, err = openPlace(r.Source.Name, r.Source.Netns); err != nil {
			return err
		}
		r.from = r.source.wayOf(r.Source, r.To)
	}
	if r.Target != nil && (r.Source == nil || r.Target.Netns != r.Source.Netns) {
		if r.target, err = openPlace(r.Target.Name, r.Target.Netns); err != nil {
			return err
		}
	}
	switch {
	case r.Watch:
		if r.Source != nil && !r.flow.From.IsValid() {
			r.flow.From = r.source.route(r.To, netip.Addr{}, 0, 0).from
		}
	case r.Outside:
		err = r.openOutside()
	default:
		if r.send, err = r.source.prepare(r.Flow, r.Size); err == nil {
			r.flow = r.send.flow
		}
	}
	if r.Target != nil {
		end := r.target
		if end == nil {
			end = r.source
		}
		if sender := r.flow.From; sender.IsValid() {
			r.to = end.wayOf(r.Target, sender)
		}
	}
	return err
}

func (r *run) openOutside() error {
	at := netlink.Link(nil)
	var err error
	if r.Link != "" {
		at, err = netlink.LinkByName(r.Link)
	} else if back := routeOf(r.From, netip.Addr{}, 0, 0); back.err != nil {
		if at = linkWith(r.Host, r.To); at == nil {
			err = fmt.Errorf("the node has no route to %s, so that nobody can tell by which link its packets come; name one with --link: %w", r.From, back.err)
		}
	} else {
		at, err = netlink.LinkByIndex(back.link)
	}
	if err != nil {
		return err
	}
	return r.letIn(at, newPacket(r.Flow))
}

// openImitated sends as the container does, by what ADD has noted of it: nothing in the container is asked.
func (r *run) openImitated() (err error) {
	a := r.Source.Attachments[0]
	if r.from.hostEnd, err = netlink.LinkByIndex(a.HostEnd.Link.Attrs().Index); err != nil {
		return err
	}
	p := newPacket(r.Flow)
	p.source, _ = net.ParseMAC(a.MAC) // a host end without a bridge takes any
	if r.from.bridge = bridgeAbove(r.from.hostEnd); r.from.bridge != nil {
		p.to = r.from.bridge.Attrs().HardwareAddr
	}
	return r.letIn(r.from.hostEnd, p)
}

func (r *run) letIn(at netlink.Link, p packet) (err error) {
	r.packet, r.flow = p, p.flow
	r.inject, err = newInjector(at)
	return err
}

func (r *run) close() (err error) {
	if r.inject != nil {
		err = r.inject.close()
	}
	if r.send != nil {
		r.send.close()
	}
	for _, p := range []*place{r.source, r.target} {
		if p != nil && p.netns != nil {
			err = errors.Join(err, p.netns.Close())
		}
	}
	return err
}

// places are those at which packets are followed.
func (r *run) places() (list []*place) {
	for _, p := range []*place{r.source, r.host, r.target} {
		if p != nil && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

type heard struct {
	at *place
	Event
}

// follow sends the packet, and hears of it until it is answered, dropped, or the time is over.
func (r *run) follow(ctx context.Context) error {
	all := make(chan heard, 64)
	var listeners sync.WaitGroup
	for _, p := range r.places() {
		err := p.do(func() (err error) { p.tracer, err = startTracer(r.marks(p)); return err })
		if err != nil {
			return errors.Join(fmt.Errorf("follow packets in %s: %w", p.name, err), r.stop())
		}
		listeners.Go(func() {
			for e := range p.heard {
				all <- heard{p, e}
			}
		})
	}
	go func() { listeners.Wait(); close(all) }()
	r.before = count(r.places())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- r.emit(ctx) }()
	patience := time.After(r.Timeout)
	known := map[uint32]bool{}
	for over := false; !over; {
		select {
		case h := <-all:
			if r.Watch && r.flow.Port == 0 && r.learn(h) {
				patience = time.After(r.Timeout)
			}
			over = r.hear(h, known)
		case r.sent = <-sent:
			over, sent = r.sent != nil, nil
		case <-patience:
			over = !r.Watch || r.flow.Port != 0
			patience = nil
		case <-ctx.Done():
			over = true
		}
	}
	r.after = count(r.places())
	err := r.stop()
	for h := range all {
		r.hear(h, known)
	}
	if r.Outside && r.inject != nil && r.flow.Protocol == TCP {
		err = errors.Join(err, r.inject.send(r.packet.end()))
	}
	for _, p := range r.places() {
		err = errors.Join(err, p.events.Close())
	}
	if r.Watch && r.flow.Port == 0 {
		err = errors.Join(err, fmt.Errorf("no such packet was seen: %w", context.Cause(ctx)))
	}
	return err
}

func (r *run) emit(ctx context.Context) error {
	switch {
	case r.Watch:
		<-ctx.Done()
		return nil
	case r.inject != nil:
		return r.inject.send(r.packet)
	}
	return r.send.send(ctx)
}

func (r *run) stop() (err error) {
	for _, p := range r.places() {
		if p.tracer != nil {
			err = errors.Join(err, p.tracer.stop())
		}
	}
	return err
}

// hear notes a step, and reports whether it is the last one.
func (r *run) hear(h heard, known map[uint32]bool) (over bool) {
	if h.at.isHost() && !r.flow.isMine(h.Event, known, r.ports) {
		return false
	}
	r.steps[h.at] = append(r.steps[h.at], h.Event)
	answer := r.isAnswer(h.Packet)
	if !answer && h.Packet.FromPort != r.flow.Port && h.Packet.FromPort != 0 {
		r.ports[h.Packet.FromPort] = true
	}
	hook, which := h.point()
	switch {
	case h.drops():
		return r.concerns(h.Event)
	case !answer && h.own && h.Verdict == Drop:
		return true
	case !answer:
	case h.own && h.Verdict == Drop:
		r.answered = cmp.Or(r.answered, &h.Event)
		return true
	case h.isCheckpoint() && h.at == r.source && hook == "input" && which == end:
		if h.Packet.isError() || h.Packet.From == r.flow.To.WithZone("") || h.Packet.To != r.flow.From {
			r.answered = cmp.Or(r.answered, &h.Event)
		} else {
			r.astray = cmp.Or(r.astray, &h.Event)
		}
		return true
	}
	return false
}

// concerns reports whether what happens to a packet is on the way of the flow's. Another trace may ask who has an address, too. A bridge sends such a
// question to all of its ports: what becomes of it there matters at the port alone behind which the address is.
func (r *run) concerns(e Event) bool {
	switch {
	case !e.Packet.About.IsValid():
		return true
	case !slices.Contains(r.next(), e.Packet.About):
		return false
	case e.Family != bridgeFamily || e.Out == 0:
		return true
	}
	for _, end := range []struct {
		of *Container
		by way
	}{{r.Source, r.from}, {r.Target, r.to}} {
		if end.of != nil && end.by.hostEnd != nil && r.hasAddress(end.of, e.Packet.About) {
			return e.Out == end.by.hostEnd.Attrs().Index
		}
	}
	return !r.isLocal(e.Packet.About)
}

// isAnswer reports whether a packet is on its way back to the sender.
func (r *run) isAnswer(h Header) bool {
	switch {
	case h.About.IsValid():
		return false
	case h.isError(), h.isReply():
		return true
	case r.flow.Protocol == Ping:
		return false
	}
	return h.FromPort != r.flow.Port && (h.ToPort == r.flow.Port || r.ports[h.ToPort])
}

// learn completes the flow from the first packet that is seen of it.
func (r *run) learn(h heard) bool {
	p := h.Packet
	isFrom := !r.flow.From.IsValid() || p.From == r.flow.From
	isTo := !r.flow.To.IsValid() || p.To == r.flow.To
	isToPort := r.flow.ToPort == 0 || p.ToPort == r.flow.ToPort
	if p.Protocol != r.flow.number() || p.FromPort == 0 || !isFrom || !isTo || !isToPort {
		return false
	}
	r.flow.From, r.flow.To, r.flow.Port, r.flow.ToPort = p.From, p.To, p.FromPort, p.ToPort
	if r.flow.Protocol == Ping {
		r.flow.ToPort = 0
	}
	return true
}
