package main

import (
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// bar shows how far long work is, where a person looks.
type bar struct {
	tracker progress.Tracker
	shown   chan struct{} // closed when nothing is shown any more; nil if nothing is
}

// newBar shows the progress of so many steps on a terminal, unless they are few.
func newBar(stderr io.Writer, what string, steps int) *bar {
	const few = 100
	if steps <= few {
		return &bar{}
	}
	return newSlowBar(stderr, what, steps)
}

// newSlowBar is newBar for steps each of which may take some time.
func newSlowBar(stderr io.Writer, what string, steps int) *bar {
	f, isFile := stderr.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return &bar{}
	}
	b := &bar{progress.Tracker{Message: what, Total: int64(steps)}, make(chan struct{})}
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

func (b *bar) step() {
	if b.shown != nil {
		b.tracker.Increment(1)
	}
}

func (b *bar) stop() {
	if b.shown != nil {
		b.tracker.MarkAsDone()
		<-b.shown
	}
}
