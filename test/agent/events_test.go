package agent

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// Networks of many containers: a bridge has room for 1,023 ports.
var large = strings.NewReplacer("10.88.0.0/24", "10.88.0.0/16")

// TestEvents takes things from a node with containers, twenty of which somebody has a connection open to. Without anybody's doing all of it
// is back as it was before, nothing twice, and the connections live. How long that took is printed as a row of a table.
func TestEvents(t *testing.T) {
	rows := map[string][]string{}
	counts := chosen([]int{1, 20}, []int{1, 100, 1000})
	for _, e := range harmtest.Events {
		for _, count := range counts {
			t.Run(fmt.Sprintf("%s/%d", e.Name, count), func(t *testing.T) {
				if !*long {
					t.Parallel() // else they are measured
				}
				took := backAfter(t, e, count)
				if *long {
					rows[e.Name] = append(rows[e.Name], fmt.Sprintf("%.2f s", took.Seconds()))
				} else {
					t.Logf("all was back after %v", took.Round(time.Millisecond))
				}
			})
		}
	}
	if *long {
		table := fmt.Sprintf("| all is back after, at attachments | %s |\n|---|%s\n", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(counts)), " | "), "[]"), strings.Repeat("---|", len(counts)))
		for _, e := range harmtest.Events {
			table += fmt.Sprintf("| %s | %s |\n", e.Name, strings.Join(rows[e.Name], " | "))
		}
		t.Log("\n" + table)
	}
}

// backAfter has an event happen to a node with so many containers, and returns how long after its end all was back.
func backAfter(t *testing.T, e harmtest.Event, count int) time.Duration {
	host, outside := newHost(t)
	e.Begin(t, host)
	containers := crowd(t, host, large.Replace(e.List()), count)
	var open []net.Conn
	for i, c := range containers[:min(count, 20)] {
		c.Serve(t)
		open = append(open, harmtest.Dial(t, &outside.Namespace, fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i)))
	}
	hit := containers[count/2]
	every := "1h"
	if e.Firewalld != "" && !*long { // it answers nobody while it reloads: on a busy machine for longer than the agent waits. A long run is on a quiet one
		every = "5s"
	}
	a := start(t, host, "--every", every)
	before, inside, shown := host.Snapshot(t), hit.Snapshot(t), e.Look(t, host, hit)
	if e.AtOnce {
		a.signal(syscall.SIGSTOP)
	}
	e.Do(t, host, hit)
	begun := time.Now()
	if e.AtOnce {
		a.signal(syscall.SIGCONT)
	}
	netlab.Eventually(t, func() error {
		looked := time.Now()
		if now := e.Look(t, host, hit); now != shown {
			return fmt.Errorf("there is\n%s\nand not\n%s\n%s", now, shown, before.Diff(host.Snapshot(t), ofAgent...)+inside.Diff(hit.Snapshot(t)))
		}
		begun = begun.Add(time.Since(looked) / 2) // it was back by then
		return nil
	})
	took := time.Since(begun)
	netlab.Until(t, "the repair to be told", func() bool { return a.log.count(`msg="put back"`) > 0 })
	netlab.Eventually(t, func() error {
		if diff := before.Diff(host.Snapshot(t), ofAgent...) + inside.Diff(hit.Snapshot(t)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	for i, conn := range open {
		if err := harmtest.Echo(conn); err != nil {
			t.Errorf("the connection to container %d that was open: %v", i, err)
		}
		harmtest.Dial(t, &outside.Namespace, fmt.Sprintf("%s:%d", netlab.HostIPv4, 8000+i))
	}
	netlab.Eventually(t, func() error {
		if s := a.status(); len(s.Findings) > 0 || s.Last == nil {
			return fmt.Errorf("status: %+v", s)
		}
		return nil
	})
	for _, line := range a.log.lines("level=WARN") {
		isBusy := strings.Contains(line, "the first look at everything takes long") || e.Firewalld != "" && strings.Contains(line, "can't be put back")
		if !isBusy {
			t.Errorf("it warns: %s", line)
		}
	}
	if *long {
		t.Logf("%s", strings.Join(a.log.lines(`msg="put back"`), ""))
	}
	return took
}

// crowd attaches containers, each with a published port.
func crowd(t *testing.T, host *netlab.Host, list string, count int) []*harmtest.Container {
	t.Helper()
	all := make([]*harmtest.Container, count)
	var workers sync.WaitGroup
	for w := range runtime.NumCPU() {
		workers.Go(func() {
			for i := w; i < count; i += runtime.NumCPU() {
				all[i] = harmtest.Attach(t, host, list, fmt.Sprint("web", i), port(8000+i))
			}
		})
	}
	if workers.Wait(); t.Failed() {
		t.FailNow()
	}
	return all
}

// TestLostEvents: an agent that could not hear all that happened to the packet filter looks at everything.
func TestLostEvents(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	web := harmtest.Attach(t, host, usual, "web", port(8000))
	a := start(t, host, "--every", "1h")
	a.signal(syscall.SIGSTOP)
	var many strings.Builder
	many.WriteString("add table ip others\nadd set ip others many { type ipv4_addr; }\n")
	for i := range 1 << 16 {
		fmt.Fprintf(&many, "add element ip others many { 10.0.%d.%d }\n", i>>8, i&255)
	}
	many.WriteString("flush set ip others many\n")
	for range 5 { // more than the agent's socket has room for
		host.Feed(t, many.String(), "nft", "-f", "-")
	}
	harmtest.Script(t, &host.Namespace, "nft delete table inet cnibox")
	a.signal(syscall.SIGCONT)
	netlab.Until(t, "all to be back", func() bool { return host.CheckList(usual, web.RuntimeConf(port(8000))) == nil })
	netlab.Until(t, "it to be said", func() bool { return a.log.count("events of nf_tables were lost") > 0 })
}
