// Package trace follows one packet through this node, from the container that sends it to the one that gets it, and says what became of it: which
// rule dropped it, or what else did. Nothing of that is computed: nf_tables tells what it does with packets that a rule marks.
package trace

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// tracer hears what nf_tables does with packets in one namespace.
type tracer struct {
	events *netlink.Conn
	owners []*netlink.Conn // of our tables
	owner  *netlink.Conn   // of the next table
	heard  chan Event
	name   string      // of the tables
	missed atomic.Bool // the kernel had more to say than there was room for

	inContainer bool
}

// startTracer begins to follow packets in the namespace of the calling thread.
func startTracer(m Marks) (t *tracer, err error) {
	t = &tracer{heard: make(chan Event, 64), name: m.table, inContainer: !m.State}
	if t.events, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
		return nil, err
	}
	const buffer = 32 << 20 // for each rule that the packet meets there is a step. The kernel tells nobody of those that don't fit
	err = errors.Join(t.events.SetReadBuffer(buffer), t.events.JoinGroup(unix.NFNLGRP_NFTRACE))
	if err == nil {
		err = t.makeTables(m)
	}
	if err != nil {
		return nil, errors.Join(err, t.stop(), t.events.Close())
	}
	go t.listen()
	return t, nil
}

// makeTables makes our tables of all families. Kernels may lack those beside inet, and a link may go meanwhile: then less is seen.
func (t *tracer) makeTables(m Marks) error {
	for _, family := range []byte{unix.NFPROTO_INET, unix.NFPROTO_BRIDGE, unix.NFPROTO_ARP, unix.NFPROTO_NETDEV} {
		chains := m.chainsOf(family)
		if len(chains) == 0 || family == unix.NFPROTO_NETDEV && m.Links == nil {
			continue
		}
		if err := t.makeTable(m.table, family, chains); err != nil && family == unix.NFPROTO_INET {
			return &plugin.MissingFeature{Name: "tables of nf_tables that go with their owner", Module: "nf_tables", Version: "5.12", Err: err}
		}
	}
	if chains := m.lastDoor(); chains != nil {
		_ = t.makeTable(m.table+"-out", unix.NFPROTO_NETDEV, chains) // kernels before 5.16 lack that hook
	}
	return nil
}

// makeTable makes a table in the namespace of the calling thread. All have one owner, so that they go together: that takes the kernel some time.
func (t *tracer) makeTable(name string, family byte, chains []chain) error {
	if t.owner == nil {
		conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return err
		}
		t.owner, t.owners = conn, append(t.owners, conn)
	}
	err := makeTable(t.owner, name, family, chains)
	if err != nil {
		t.owner = nil // it will hear more of the messages that have failed: the next table gets another one
	}
	return err
}

func (t *tracer) listen() {
	defer close(t.heard)
	packets := map[uint32]Event{}
	mine, others := map[uint32]bool{}, map[uint32]bool{} // packets in a container that a rule of ours marks, and one of another trace. On the host isMine tells
	hear := func(m netlink.Message) {
		e, ok := parse(m)
		e.own = e.Table == t.name
		switch {
		case !ok:
			return
		case e.own && e.Rule != 0:
			mine[e.id] = true
		case !e.own && strings.HasPrefix(e.Table, ownTables):
			others[e.id] = others[e.id] || e.Rule != 0
			return
		case t.inContainer && others[e.id] && !mine[e.id]:
			return
		}
		if e.Packet == (Header{}) { // they are there with the first step of a chain
			e.Packet, e.In, e.Out = packets[e.id].Packet, packets[e.id].In, packets[e.id].Out
		}
		packets[e.id] = e
		t.heard <- e
	}
	for {
		messages, err := t.events.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			t.missed.Store(true)
		} else if err != nil {
			break
		}
		for _, m := range messages {
			hear(m)
		}
	}
	for _, m := range t.rest() {
		hear(m)
	}
}

// rest returns what has come and was not read yet.
func (t *tracer) rest() (list []netlink.Message) {
	raw, err := t.events.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		for buffer := make([]byte, 1<<16); ; {
			n, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
			var m netlink.Message
			if err != nil || m.UnmarshalBinary(buffer[:n]) != nil {
				return
			}
			m.Data = bytes.Clone(m.Data)
			list = append(list, m)
		}
	})
	return list
}

// stop lets the tables go, and ends heard behind what has come. The kernel tells of a step before the packet goes on: of a packet that has come to its
// end all has come.
func (t *tracer) stop() error {
	for _, owner := range t.owners {
		_ = owner.Close() // with which the tables go
	}
	return t.events.SetReadDeadline(time.Unix(1, 0))
}
