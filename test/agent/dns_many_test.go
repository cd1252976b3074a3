package agent

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/test/netlab"
)

// manyNames are the containers of a network.
type manyNames struct {
	*inDNS // the first of them, which asks
	conn   socket
	others []*inDNS
	back   time.Duration // from the start of a new agent until it is answered
}

func manyName(number, network int) string { return fmt.Sprintf("c%d-of-%d", number, network) }

// await asks until there is an answer, which has to be the wanted one, and returns how long after the beginning that was.
func (n *manyNames) await(began time.Time, ask func(*dns.Msg) (*dns.Msg, error), name, want string) time.Duration {
	n.Helper()
	at, err := askUntil(ask, name, want)
	if err != nil {
		n.Error(err)
	}
	return at.Sub(began)
}

// asksAcross asks for a container of another network, and returns how many questions that were, and how many of them got an answer of any use.
func (n *manyNames) asksAcross(c *inDNS, name string) (asked, answered int) {
	n.Helper()
	own, its := gateway(n.network), gateway(c.network)
	for _, q := range []struct {
		gateway, name string
		kind          uint16
		want          string
	}{
		{own, name + ".dns.podman", dns.TypeA, "NXDOMAIN"},
		{own, name, dns.TypeA, "NXDOMAIN"}, // the node's server says so
		{own, reverse(c.v4), dns.TypePTR, "NXDOMAIN"},
		{its, name, dns.TypeA, "REFUSED"},
	} {
		asked++
		if got := n.inTime("udp", q.gateway, q.name, q.kind, q.want); got != q.want {
			answered++
			n.Errorf("%s asks %s for %s: %q, want %q", n.Pod.Name(), q.gateway, q.name, got, q.want)
		}
	}
	return asked, answered
}

// TestDNSMany has many containers on several networks. Each is found by another on its network when its ADD has returned, by none elsewhere, and by nobody
// when its DEL has. An agent that is killed and started again knows them all. How long each of these takes is printed: from the return of the call to the
// first answer that is right, asked with no pause. What a question takes at any time is printed beside it.
func TestDNSMany(t *testing.T) {
	t.Parallel()
	host, out := newNamedHost(t)
	zone{}.serve(t, out, netlab.OutsideIPv4)
	a := start(t, host, "--dns", "--every", "1h")
	networks, each := chosen(2, 10), chosen(10, 100)
	var all []*manyNames
	var first, added times
	for i := range networks {
		n := &manyNames{inDNS: newNamed(t, host, i, "first")}
		n.conn = n.newSocket()
		first = append(first, n.await(n.changed, n.askByTCP, "first", n.v4))
		all = append(all, n)
	}
	asked, answered := 0, 0
	for number := range each - 1 {
		for i, n := range all {
			name := manyName(number, i)
			c := newNamed(t, host, i, name)
			n.others = append(n.others, c)
			if added = append(added, n.await(c.changed, n.conn.ask, name, c.v4)); t.Failed() {
				t.FailNow()
			}
			a, b := all[(i+1)%networks].asksAcross(c, name)
			asked, answered = asked+a, answered+b
			if number%10 == 0 { // the kernel has room for some thousand neighbours, of all namespaces together
				c.is("first", dns.TypeAAAA, n.v6)
			}
		}
	}
	t.Logf("from ADD of a network's first container to the right answer: %v", first)
	t.Logf("from ADD of another one to the right answer: %v", added)
	t.Logf("across networks: %d questions, of which %d were answered", asked, answered)

	a.kill()
	var refused, back times
	for _, n := range all {
		refused = append(refused, n.isRefused("udp", gateway(n.network), "first"))
	}
	t.Logf("the agent is killed, and each gateway refuses: %v", refused)
	began := time.Now()
	a = begin(t, host, "--dns", "--every", "1h")
	var wait sync.WaitGroup
	for _, n := range all {
		wait.Go(func() { n.back = n.await(began, n.askByTCP, "first", n.v4) })
	}
	wait.Wait()
	for i, n := range all {
		back = append(back, n.back)
		wait.Go(func() {
			for number, c := range n.others {
				n.await(began, n.conn.ask, manyName(number, i), c.v4)
			}
		})
	}
	wait.Wait()
	t.Logf("from the start of another agent to the right answer on a network: %v", back)
	t.Logf("from its start until all %d names have been asked for, and were right: %s", len(added), ms(time.Since(began)))
	a.awaitReady()

	var deleted, present times
	for i, n := range all {
		for number, c := range n.others {
			present = append(present, n.await(time.Now(), n.conn.ask, "first", n.v4))
			c.leave()
			if deleted = append(deleted, n.await(c.changed, n.conn.ask, manyName(number, i)+".dns.podman", "NXDOMAIN")); t.Failed() {
				t.FailNow()
			}
		}
	}
	t.Logf("from DEL to the first answer without it: %v", deleted)
	t.Logf("beside these, an answer that nothing has changed: %v", present)
}
