package conformance

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// group is the rows of one plugin, or of the contract that all plugins share.
type group struct {
	name string // of the plugin, without which the rows can't be tried, or of something else
	// needs is what the kernel must have for any of the rows.
	needs *netlab.Feature
	rows  []row
}

// row is one promise to users.
type row struct {
	// name says it in plain words.
	name string
	// differs says why the reference plugins do otherwise, and why we don't.
	differs string
	// choice is set where the CNI specification and the reference leave it open: the row only says what we do.
	choice bool
	// known says what is wrong with our plugins as long as they fail the row.
	known string
	// backends has the row tried with rules of iptables too, which lab.backend then asks for.
	backends bool
	// needs is what the kernel must have.
	needs *netlab.Feature
	test  func(l *lab)
}

// each returns the row as it is tried: once, or once for each backend.
func (r row) each() []row {
	if !r.backends {
		return []row{r}
	}
	with := r
	with.name += " (iptables)"
	with.test = func(l *lab) {
		l.backend = "iptables"
		r.test(l)
	}
	return []row{r, with}
}

// needed returns what the kernel must have for a row of the group.
func (g group) needed(r row) (features []netlab.Feature) {
	for _, feature := range []*netlab.Feature{g.needs, r.needs} {
		if feature != nil {
			features = append(features, *feature)
		}
	}
	return features
}

// outcome is what came of trying a row.
type outcome struct {
	failures []string // none: it holds
	skipped  string   // what the kernel lacks
	foreign  string   // why the row is not about these plugins
}

// notTried is a row that is not about the plugins, or that the kernel lacks something for.
const notTried = "n/a"

func (o outcome) String() string {
	switch {
	case o.skipped != "", o.foreign != "":
		return notTried
	case len(o.failures) > 0:
		return "FAIL"
	}
	return "ok"
}

// judge is the testing.TB of a row: what fails in it fails the row, and it is for the suite to say whether that fails the
// test. It ends a row as a testing.T does.
type judge struct {
	testing.TB
	mu       sync.Mutex
	outcome  outcome
	cleanups []func()
}

// try runs a row's test and what it has to clean up.
func try(t testing.TB, test func(*judge)) outcome {
	j := &judge{TB: t}
	j.run(func() { test(j) })
	for len(j.cleanups) > 0 {
		last := len(j.cleanups) - 1
		cleanup := j.cleanups[last]
		j.cleanups = j.cleanups[:last]
		j.run(cleanup)
	}
	return j.outcome
}

// run calls f on a goroutine that FailNow and SkipNow may end.
func (j *judge) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { // what a plugin printed may be nothing that a row expects
			if p := recover(); p != nil {
				j.fail(fmt.Sprint("panic: ", p))
			}
		}()
		f()
	}()
	<-done
}

func (j *judge) Cleanup(f func()) { j.cleanups = append(j.cleanups, f) }

func (j *judge) fail(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.outcome.failures = append(j.outcome.failures, strings.TrimSuffix(text, "\n")+at())
}

// at says which line of a row is running.
func at() string {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		name := filepath.Base(frame.File)
		if strings.HasSuffix(name, "_test.go") && !slices.Contains([]string{"row_test.go", "lab_test.go", "look_test.go"}, name) {
			return fmt.Sprintf(" (%s:%d)", name, frame.Line)
		}
	}
	return ""
}

func (j *judge) Error(args ...any)                 { j.fail(fmt.Sprintln(args...)) }
func (j *judge) Errorf(format string, args ...any) { j.fail(fmt.Sprintf(format, args...)) }
func (j *judge) Fatal(args ...any)                 { j.fail(fmt.Sprintln(args...)); runtime.Goexit() }
func (j *judge) Fatalf(format string, args ...any) {
	j.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (j *judge) Fail()        { j.fail("failed") }
func (j *judge) FailNow()     { j.fail("failed"); runtime.Goexit() }
func (j *judge) Failed() bool { return len(j.outcome.failures) > 0 }

func (j *judge) Skip(args ...any)                 { j.skip(fmt.Sprint(args...)) }
func (j *judge) Skipf(format string, args ...any) { j.skip(fmt.Sprintf(format, args...)) }
func (j *judge) SkipNow()                         { j.skip("skipped") }
func (j *judge) Skipped() bool                    { return j.outcome.skipped != "" }

func (j *judge) skip(why string) {
	j.outcome.skipped = why
	runtime.Goexit()
}

// foreign ends a row that is not about the plugins that are tested.
func (j *judge) foreign(why string) {
	j.outcome.foreign = why
	runtime.Goexit()
}
