package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/capture"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
)

// Options say what to try.
type Options struct {
	Network string
	Outside []netip.AddrPort // with port 0 by ping, otherwise by TCP
	Name    string           // to resolve; "": the name servers have to answer, whatever they say
	Servers []netip.Addr     // name servers to ask in place of the network's
	Timeout time.Duration    // of one test
}

// Report is what works on a network.
type Report struct {
	Network    string       `json:"network"`
	Works      bool         `json:"works"` // all that was tried
	Containers []*Container `json:"containers"`
	Tests      []*Test      `json:"tests"`
}

// Test is one kind of packet between two places, over one family of addresses.
type Test struct {
	Name    string  `json:"name"`
	Family  string  `json:"family"` // IPv4 or IPv6
	To      string  `json:"to,omitempty"`
	Outcome Outcome `json:"outcome"`
	Took    float64 `json:"milliseconds,omitempty"` // until the answer came, where somebody else gave it
	Bytes   int     `json:"bytes,omitempty"`        // of the largest packet
	Note    string  `json:"note,omitempty"`         // why it was not tried, or what is worth to know though it works
	Lost    *Loss   `json:"lost,omitempty"`

	attempt
}

// Outcome is what came of a test.
type Outcome string

// The outcomes.
const (
	OK       Outcome = "ok"
	Failed   Outcome = "failed"
	NotTried Outcome = "notTried"
)

// Run probes a network. Whatever it makes it takes away, also when ctx ends.
func Run(ctx context.Context, node network.Node, o Options) (r *Report, err error) {
	list, err := node.Load(o.Network)
	if err != nil {
		return nil, err
	}
	port := 0 // of the host, that leads to b
	if network.RequirePublisher(list) == nil {
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	if clock, err := capture.KeepTime(); err == nil {
		defer clock.Close()
	}
	id := "cnictl-probe-" + strings.ToLower(rand.Text()[:12])
	a, b := newContainer("a", id, 0), newContainer("b", id, port)
	defer func() { err = errors.Join(err, b.remove(node, list), a.remove(node, list)) }()
	for _, c := range []*Container{a, b} {
		if err := c.add(ctx, node, list); err != nil {
			return nil, err
		}
	}
	w := &subject{node: node, list: list, a: a, b: b, port: port, traced: map[string][2]string{}}
	r = &Report{Network: list.Name, Works: true, Containers: []*Container{a, b}, Tests: w.tests(o)}
	seen, err := w.try(ctx, r.Tests, o.Timeout)
	if err == nil {
		err = stopped(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range r.Tests {
		switch t.Outcome {
		case OK:
			t.Took = float64(w.roundTrip(t, seen).Round(time.Microsecond)) / float64(time.Millisecond)
		case Failed:
			t.Lost = w.locate(t, seen)
			r.Works = false
		}
	}
	return r, nil
}

// stopped is why the work was ended before it was done, nil if it was not.
func stopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the probe was stopped: %w", context.Cause(ctx))
}
