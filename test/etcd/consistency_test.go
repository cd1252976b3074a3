package etcd

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cnibox/cnibox/test/netlab"
)

// operation is something that happens to one address. Its output says nothing more.
type operation struct {
	kind    string // "take", "free", and at the end "has"
	address netip.Addr
	holder  string
}

// model is what an address may go through: it is taken by one who has it until he frees it. What is the state is who has it.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[netip.Addr][]porcupine.Operation{}
		for _, o := range history {
			a := o.Input.(operation).address
			of[a] = append(of[a], o)
		}
		for _, part := range of {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		switch o := input.(operation); o.kind {
		case "take":
			return state == "", o.holder
		case "free":
			return state == o.holder, ""
		default:
			return state == o.holder, state
		}
	},
	DescribeOperation: func(input, _ any) string {
		o := input.(operation)
		return fmt.Sprintf("%s %s %v", o.holder, o.kind, o.address)
	},
}

// history is written by many at once.
type history struct {
	sync.Mutex
	start time.Time
	list  []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

func (h *history) note(client int, call, end int64, kind, holder string, addresses ...netip.Addr) {
	h.Lock()
	defer h.Unlock()
	for _, a := range addresses {
		h.list = append(h.list, porcupine.Operation{ClientId: client, Input: operation{kind, a, holder}, Call: call, Return: end})
	}
}

// TestModel shows histories that the checker has to accept, and others.
func TestModel(t *testing.T) {
	t.Parallel()
	a, never := address("10.70.0.2"), int64(math.MaxInt64)
	type step struct {
		kind, holder string
		call, end    int64
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  bool
	}{
		{"one after the other", []step{{"take", "x", 0, 1}, {"free", "x", 2, 3}, {"take", "y", 4, 5}, {"has", "y", 6, 6}}, true},
		{"taken while it is freed", []step{{"take", "x", 0, 1}, {"free", "x", 2, 5}, {"take", "y", 3, 4}}, true},
		{"freed some time later", []step{{"take", "x", 0, 1}, {"free", "x", 2, never}, {"take", "y", 8, 9}, {"free", "y", 10, 11}}, true},
		{"taken by two", []step{{"take", "x", 0, 1}, {"take", "y", 2, 3}}, false},
		{"taken by two at once", []step{{"take", "x", 0, 3}, {"take", "y", 1, 2}}, false},
		{"taken before it is freed", []step{{"take", "x", 0, 1}, {"take", "y", 2, 3}, {"free", "x", 4, 5}, {"free", "y", 4, 5}}, false},
		{"lost", []step{{"take", "x", 0, 1}, {"has", "", 2, 2}}, false},
		{"left", []step{{"take", "x", 0, 1}, {"free", "x", 2, 3}, {"has", "x", 4, 4}}, false},
	} {
		var h history
		for i, s := range tt.steps {
			h.note(i, s.call, s.end, s.kind, s.holder, a)
		}
		if got := porcupine.CheckOperations(model, h.list); got != tt.want {
			t.Errorf("%s: the checker says %v", tt.name, got)
		}
	}
}

// TestConsistency attaches and detaches containers on all hosts at once while members and plugins are killed, paused and cut off. The history of it
// is checked, and in the end each attachment has its addresses and nobody else has any.
func TestConsistency(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	for run := range long(1, 20) {
		seed, more := rand.Uint64(), run%4
		n := network{name: fmt.Sprint("run", run)}.with("timeoutSeconds", 5)
		n.ranges = fmt.Sprintf(`[[{"subnet":"10.70.0.0/%d"}],[{"subnet":"fd00:70::/%d"}]]`, 28-more, 124-more) // 13 addresses for 12 at once
		if !c.tryConsistency(t, 4<<more, n, seed) {
			t.Fatalf("run %d failed, seed %d", run, seed)
		}
	}
}

func (c *cluster) tryConsistency(t *testing.T, atOnce int, n network, seed uint64) bool {
	h, ended := &history{start: time.Now()}, make(chan bool)
	var one sync.Mutex
	live, counts := holding{}, map[string]int{}
	go func() {
		c.each(atOnce, func(on *host, i int) {
			w := &worker{host: on, number: on.index*100 + i, random: rand.New(rand.NewPCG(seed, uint64(on.index*100+i))), history: h, n: n}
			w.work(t, time.Duration(long(8, 30))*time.Second)
			one.Lock()
			defer one.Unlock()
			maps.Copy(live, w.live)
			for what, count := range w.counts {
				counts[what] += count
			}
		})
		close(ended)
	}()
	done := c.harm(t, rand.New(rand.NewPCG(seed, 1000)), ended)
	c.awaitHealth(t)
	for _, on := range c.hosts {
		netlab.Eventually(t, func() error {
			err := on.tryKeep(n)
			if left := on.MustRun(t, "ls", "/var/lib/cni/etcd/"+n.name+"/open"); err == nil && left != "" {
				return fmt.Errorf("open on %s: %s", on.name, left)
			}
			return err
		})
	}
	has := c.held(t, n)
	end := h.now()
	for a, holder := range live {
		parts := strings.Split(has[a], "/") // the number of the attachment is not known to etcd
		if len(parts) == 3 && strings.HasPrefix(holder, parts[1]+"#") {
			h.note(0, end, end, "has", holder, a)
		} else {
			t.Errorf("lost: %v of %s is held by %q", a, holder, has[a])
			h.note(0, end, end, "has", "", a)
		}
	}
	for a, holder := range has {
		if live[a] == "" {
			t.Errorf("left: %v is held by %s", a, holder)
		}
	}
	result := porcupine.CheckOperationsTimeout(model, h.list, netlab.Patience)
	t.Logf("%s, %d at once on each host: %d operations on addresses, %v, %v; %d attachments' addresses at the end; the checker says %s", n.name, atOnce, len(h.list), counts, done, len(live), result)
	if result != porcupine.Ok {
		t.Errorf("the history is not one of addresses that one attachment has at a time: %s", result)
	}
	return !t.Failed()
}

// harm does something to a member, one after the other, until all have ended. It returns what it has done.
func (c *cluster) harm(t *testing.T, random *rand.Rand, ended chan bool) map[string]int {
	counts := map[string]int{}
	for {
		h, pause := c.hosts[random.IntN(3)], time.Duration(500+random.IntN(2500))*time.Millisecond
		if random.IntN(2) == 0 {
			h = c.leader(t)
		}
		what := []string{"members killed", "members paused", "hosts cut off"}[random.IntN(3)]
		counts[what]++
		switch what {
		case "members killed":
			h.killMember()
		case "members paused":
			h.pauseMember()
		default:
			h.cut(t)
		}
		isOver := wait(ended, pause)
		switch what {
		case "members killed":
			h.startMember(t)
		case "members paused":
			h.continueMember()
		default:
			h.connect(t)
		}
		if isOver || wait(ended, pause) {
			return counts
		}
	}
}

// wait waits, and reports whether something has ended meanwhile.
func wait(ended chan bool, most time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(most):
		return false
	}
}

// worker attaches and detaches one container again and again.
type worker struct {
	*host
	*history
	number int
	random *rand.Rand
	n      network
	live   holding
	counts map[string]int
}

func (w *worker) work(t testing.TB, most time.Duration) {
	id := fmt.Sprintf("%s-%d", w.name, w.number)
	w.live, w.counts = holding{}, map[string]int{}
	for i := 0; ; i++ {
		holder := fmt.Sprintf("%s#%d", id, i)
		call := w.now()
		r := w.run(t, "ADD", id)
		w.counts[outcome("ADD", r)]++
		var has []netip.Addr
		if r.ExitCode == 0 {
			has = addressesOf(t, r)
			w.note(w.number, call, w.now(), "take", holder, has...)
			netlab.Pause(time.Duration(w.random.IntN(300)) * time.Millisecond)
		}
		if w.now() > int64(most) && len(has) > 0 && w.random.IntN(2) == 0 {
			for _, a := range has {
				w.live[a] = holder
			}
			return
		}
		call = w.now()
		for r = w.run(t, "DEL", id); r.ExitCode != 0; r = w.run(t, "DEL", id) {
			w.counts[outcome("DEL", r)]++
		}
		w.counts[outcome("DEL", r)]++
		end := w.now()
		if r.Stderr != "" { // it is noted
			end = math.MaxInt64
		}
		w.note(w.number, call, end, "free", holder, has...)
		if w.now() > int64(most) {
			return
		}
	}
}

func outcome(verb string, r netlab.PluginResult) string {
	switch {
	case r.ExitCode < 0:
		return verb + " killed"
	case strings.Contains(r.Stdout, "the etcd cluster answers"):
		return verb + " failed"
	case r.ExitCode > 0: // such as a full pool
		return verb + " refused"
	case r.Stderr != "":
		return verb + " noted"
	}
	return verb + " done"
}

// run calls the plugin, and kills some.
func (w *worker) run(t testing.TB, verb, id string) netlab.PluginResult {
	cmd := w.PluginCommand(t, "etcd", w.call(verb, id, w.n))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := w.Start(cmd); err != nil {
		t.Error(err)
		return netlab.PluginResult{}
	}
	if w.random.IntN(8) == 0 {
		after := time.Duration(w.random.IntN(150)) * time.Millisecond
		go func() {
			netlab.Pause(after)
			_ = cmd.Process.Kill()
		}()
	}
	_ = cmd.Wait()
	return netlab.PluginResult{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}
}
