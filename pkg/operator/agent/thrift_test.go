package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestThrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes
		for every, rests := range map[time.Duration]bool{time.Second: false, DefaultEvery: true, time.Hour: true} {
			var looks thrift
			if next := looks.next(); next.After(time.Now()) {
				t.Errorf("every %v: the first look may begin in %v", every, time.Until(next))
			}
			looks.begin()
			if next := looks.next(); time.Until(next) < time.Hour {
				t.Errorf("every %v: another look may begin in %v, beside the first", every, time.Until(next))
			}
			used := processorTime()
			for processorTime() == used { // what a look takes
			}
			looks.end(every)
			if next := looks.next(); next.After(time.Now()) != rests {
				t.Errorf("every %v: after a look the next may begin in %v", every, time.Until(next))
			}
		}
	})
}
