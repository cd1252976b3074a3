package operator

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestDoctorPacketsTogether has doctors look at one node at the same time, beside traces: none takes another's packets for its own.
func TestDoctorPacketsTogether(t *testing.T) {
	t.Parallel()
	f := newField(t)
	before := f.host.Snapshot(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, found := range f.lost(t) {
				t.Errorf("doctor: %s", found)
			}
		})
		all.Go(func() { f.wantAnswer(t, "beside doctors", outwards, published) })
	}
	all.Wait()
	if diff := before.Diff(f.host.Snapshot(t)); diff != "" {
		t.Errorf("left behind:\n%s", diff)
	}
}

// TestDoctorPacketsKilled ends doctor at any moment, by a signal that can't be caught: nothing is left of it.
func TestDoctorPacketsKilled(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.run(t, "ip link add lonely0 type bridge; ip link set lonely0 up")
	state := func() string {
		return f.host.MustRun(t, "nft", "list", "tables") + f.host.MustRun(t, "ip", "-br", "link") + f.host.MustRun(t, "tc", "qdisc")
	}
	before := state()
	const most = 600 // milliseconds
	for range 30 {
		cmd := f.host.Command(netlab.Cnictl(t), "doctor", "packet-lost")
		if err := f.host.Start(cmd); err != nil {
			t.Fatal(err)
		}
		netlab.Pause(time.Duration(rand.IntN(most)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		netlab.Until(t, "what doctor has made to go", func() bool { return state() == before })
	}
	for _, found := range f.lost(t) {
		t.Errorf("doctor: %s", found)
	}
}
