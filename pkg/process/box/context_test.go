package box

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestCallContextEndsWithTheTime(t *testing.T) {
	for name, notice := range map[string]func(context.Context){
		"who waits": func(c context.Context) { <-c.Done() },
		"who asks": func(c context.Context) {
			for c.Err() == nil {
				runtime.Gosched()
			}
		},
		"who waits late": func(c context.Context) { netlab.Pause(20 * time.Millisecond); <-c.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			c, end := callContext(plugin.Add, 20*time.Millisecond)
			defer end()
			notice(c)
			if err := c.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			if why := context.Cause(c); why == nil || why.Error() != "out of time after 20ms" {
				t.Errorf("cause %v", why)
			}
		})
	}
}

// What is derived from the context ends with it, for the same reason.
func TestCallContextHasDescendants(t *testing.T) {
	patient, end := callContext(plugin.Add, netlab.Patience)
	defer end()
	if err := patient.Err(); err != nil {
		t.Fatalf("%v before the time is up", err)
	}
	c, end := callContext(plugin.Add, 100*time.Millisecond)
	defer end()
	type key struct{}
	derived, cancel := context.WithTimeout(context.WithValue(c, key{}, "value"), netlab.Patience)
	defer cancel()
	if d, ok := derived.Deadline(); !ok || time.Until(d) > time.Minute {
		t.Errorf("deadline %v", d)
	}
	<-derived.Done()
	if why := context.Cause(derived); why.Error() != "out of time after 100ms" {
		t.Errorf("cause %v", why)
	}
	if context.WithoutCancel(derived).Err() != nil {
		t.Error("what is to be undone ends too")
	}
}

// heedSignals has the process take signals again when the test ends. One that is called ignores some, and so would those that it starts.
func heedSignals(t *testing.T) {
	t.Cleanup(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT) })
}

// Where the caller ignores them already, as in the DEL that takes back an ADD, no other signals are ignored: children can be waited for.
func TestCallContextIgnoresNoMore(t *testing.T) {
	heedSignals(t)
	for range 2 {
		_, end := callContext(plugin.Del, time.Minute)
		defer end()
	}
	if err := exec.Command("true").Run(); err != nil {
		t.Error(err)
	}
}
