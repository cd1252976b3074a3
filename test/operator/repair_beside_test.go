package operator

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// limited is a network whose containers come and go here.
var limited = harmtest.Conflist(harmtest.Limited)

// ofOthers begin the lines of a snapshot that tell of attachments that came and went.
var ofOthers = []string{"file /var/lib/cni/networks/demo/last", "file /var/lib/cni/networks/.cnibox", "file /run/netns", "mount /run/netns"}

// TestRepairRace has containers deleted while they are repaired, at every moment of a repair. What was put back behind a DEL's back is removed
// again.
func TestRepairRace(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	stays := p.add(limited, "stays", port(9000, 80, "tcp"))
	asBefore := p.unchanged(stays.Pod, ofOthers...)
	for i := range 24 {
		c := p.add(limited, "goes"+strconv.Itoa(i), port(8000, 80, "tcp"))
		p.script("nft delete table inet cnibox; ip link set " + c.End + " nomaster; tc qdisc del dev " + c.End + " root; ip link del " + c.IFB)
		repaired := make(chan string)
		go func() {
			_, printed := p.cnictl("repair")
			repaired <- printed
		}()
		const begins, step = 280, 10 // milliseconds: when the second look begins, and how far apart the tries are
		netlab.Pause(time.Duration(begins+step*i) * time.Millisecond)
		if err := p.host.DelList(limited, c.RuntimeConf(port(8000, 80, "tcp"))); err != nil {
			t.Error(err)
		}
		printed := <-repaired
		c.Pod.Delete(t)
		asBefore(fmt.Sprintf("by try %d\n%s", i, printed))
	}
	if err := p.host.CheckList(limited, stays.RuntimeConf(port(9000, 80, "tcp"))); err != nil {
		t.Error(err)
	}
}

// TestRepairBesideOthers repairs all the time while containers come and go. It finds nothing to put back, and is in nobody's way.
func TestRepairBesideOthers(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	asBefore := p.unchanged(p.add(limited, "stays", port(9000, 80, "tcp")).Pod, ofOthers...)
	const workers, each = 3, 6
	done := make(chan error)
	for w := range workers {
		rt := p.host.NewPod(t, fmt.Sprintf("comes%d", w)).RuntimeConf(port(9001+w, 80, "tcp"))
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				rt.ContainerID = fmt.Sprintf("comes%d-%d", w, i)
				if _, err = p.host.AddList(limited, rt); err == nil {
					err = p.host.CheckList(limited, rt)
				}
				if err == nil {
					err = p.host.DelList(limited, rt)
				}
			}
			done <- err
		}()
	}
	for running := workers; running > 0; {
		if _, printed := p.cnictl("repair"); strings.Contains(printed, "put back") {
			t.Errorf("what was being made or taken away was repaired:\n%s", printed)
		}
		select {
		case err := <-done:
			running--
			if err != nil {
				t.Error(err)
			}
		default:
		}
	}
	asBefore("by what came and went")
}

// TestRepairUDP leaves flows to the container as they are, and has those find it that began while the port was not published.
func TestRepairUDP(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	web := p.add(harmtest.Conflist(harmtest.Usual), "web", port(5353, 53, "udp"))
	web.ServeUDP(t, ":53")
	dialUDP := func() net.Conn {
		conn, err := p.outside.DialContext(context.Background(), "udp", netlab.HostIPv4+":5353")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	// A datagram may be lost, or answered that nobody is there.
	answer := func(conn net.Conn) error {
		_ = conn.SetDeadline(time.Now().Add(silence))
		if _, err := conn.Write([]byte("hello\n")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 100))
		return err
	}
	p.script("nft add table inet own; nft 'add chain inet own input { type filter hook input priority 0; }'; nft add rule inet own input ct state new counter") // flows are tracked
	old, late := dialUDP(), dialUDP()
	netlab.Eventually(t, func() error { return answer(old) })
	p.script("nft delete table inet cnibox")
	if err := answer(late); err == nil {
		t.Fatal("the port is published though the rules are gone")
	}
	p.must("repair")
	for name, conn := range map[string]net.Conn{"before": old, "meanwhile": late} {
		if err := netlab.Await(func() error { return answer(conn) }); err != nil {
			t.Errorf("a flow from %s: %v\n%s", name, err, p.host.MustRun(t, "sh", "-c", "cat /proc/net/nf_conntrack || conntrack -L -p udp || true"))
		}
	}
}
