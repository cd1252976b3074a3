package box

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// What is derived from a call's context ends with it, for the same reason.
func TestCallContextEndsWithTheTime(t *testing.T) {
	heedSignals(t)
	c, end := callContext(plugin.Add, 100*time.Millisecond)
	defer end()
	derived, cancel := context.WithTimeout(c, netlab.Patience)
	defer cancel()
	<-derived.Done()
	for _, c := range []context.Context{c, derived} {
		if why := context.Cause(c); c.Err() == nil || why.Error() != "out of time after 100ms" {
			t.Errorf("error %v, cause %v", c.Err(), why)
		}
	}
	if context.WithoutCancel(derived).Err() != nil {
		t.Error("what is to be undone ends too")
	}
	patient, end := callContext(plugin.Add, netlab.Patience)
	defer end()
	if err := patient.Err(); err != nil {
		t.Errorf("%v before the time is up", err)
	}
}

// heedSignals has the process take signals again when the test ends. One that is called ignores some, and so would those that it starts.
func heedSignals(t *testing.T) {
	t.Cleanup(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT) })
}

// Where the caller ignores them already, as in the DEL that takes back an ADD, no other signals are ignored: children can be waited for. Nor do
// others end an ADD, such as those that Go sends itself.
func TestCallContextIgnoresNoMore(t *testing.T) {
	heedSignals(t)
	for range 2 {
		_, end := callContext(plugin.Del, time.Minute)
		defer end()
	}
	if err := exec.Command("true").Run(); err != nil {
		t.Error(err)
	}
	add, end := callContext(plugin.Add, netlab.Patience)
	defer end()
	_ = add.Done()
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGURG)
	defer signal.Stop(seen)
	for range 100 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGURG); err != nil {
			t.Fatal(err)
		}
		<-seen
	}
	if err := add.Err(); err != nil {
		t.Errorf("%v: %v", err, context.Cause(add))
	}
}
