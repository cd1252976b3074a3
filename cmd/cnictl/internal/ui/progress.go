package ui

import (
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// Bar shows how far long work is, where a person looks.
type Bar struct {
	tracker progress.Tracker
	shown   chan struct{} // closed when nothing is shown any more; nil if nothing is
}

// NewBar shows the progress of so many steps on a terminal, unless they are few.
func NewBar(stderr io.Writer, what string, steps int) *Bar {
	const few = 100
	if steps <= few {
		return &Bar{}
	}
	return NewSlowBar(stderr, what, steps)
}

// NewSlowBar is NewBar for steps each of which may take some time.
func NewSlowBar(stderr io.Writer, what string, steps int) *Bar {
	f, isFile := stderr.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return &Bar{}
	}
	b := &Bar{progress.Tracker{Message: what, Total: int64(steps)}, make(chan struct{})}
	w := progress.NewWriter()
	w.SetOutputWriter(f)
	w.SetAutoStop(true)
	w.AppendTracker(&b.tracker)
	go func() {
		defer close(b.shown)
		w.Render()
	}()
	return b
}

// Step is one step done.
func (b *Bar) Step() {
	if b.shown != nil {
		b.tracker.Increment(1)
	}
}

// Stop ends what is shown.
func (b *Bar) Stop() {
	if b.shown != nil {
		b.tracker.MarkAsDone()
		<-b.shown
	}
}
